//! The node's agent, and `install-cni` as a process, with an API server that can be made to fail, over real HTTP.

#![expect(clippy::disallowed_methods, reason = "tests measure time, start processes and read files")]
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod metrics;
mod readiness;
mod relocation;
mod repair;
mod shutdown;
mod sockets;
mod takeover;
mod token;
mod watch;
