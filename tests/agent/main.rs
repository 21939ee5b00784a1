//! The node's agent, and `install-cni` as a process, with an API server that can be made to fail, over real HTTP.

#![expect(clippy::disallowed_methods, reason = "tests measure time, start processes and read files")]
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod ending;
mod metrics;
mod moving;
mod ready;
mod repairing;
mod sockets;
mod token;
mod turns;
mod watching;
