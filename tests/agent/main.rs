//! Tests of the node agent: `install-cni` as a process on a node that consists of temporary directories, with an API server double that
//! injects faults, over real HTTP.

#![expect(clippy::disallowed_methods, reason = "tests measure time, start processes and read files")]
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod auto;
mod metrics;
mod mounts;
mod readiness;
mod relocation;
mod repair;
mod sandbox;
mod shutdown;
mod sockets;
mod status;
mod takeover;
mod tasks;
mod token;
mod watch;
mod ztunnel;
