//! Tests of the admission server over real TLS and sockets, with an API server double that fails on demand.

#![expect(clippy::disallowed_methods, reason = "tests measure time and write files")]
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod budget;
mod bundle;
mod callers;
mod certificates;
mod cluster;
mod configuration;
mod dapr;
mod hostile;
mod life;
mod memory;
mod meshes;
mod metrics;
mod program;
mod reviews;
mod silent;
mod stage;
mod status;
mod tasks;
