//! The node's agent, and `install-cni` as a process, with an API server that can be made to fail, over real HTTP.

#![expect(clippy::disallowed_methods, reason = "tests measure time, start processes and read files")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

#[path = "../support/api/server.rs"]
mod api;

#[path = "../support/metrics.rs"]
mod names;

#[path = "../support/plugin.rs"]
#[expect(dead_code, reason = "every tier uses its part of it")]
mod plugin;

mod ending;
mod metrics;
mod moving;
mod ready;
mod repairing;
mod sockets;
mod stage;
mod token;
mod turns;
mod watching;
