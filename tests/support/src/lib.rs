//! Test support that several suites, benches and tools share: doubles, namespaces, container runtimes, cases.
//!
//! Functions panic or return errors for the test to report. Nothing here asserts a property of the programs under test.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]
#![allow(clippy::disallowed_methods, reason = "tests start processes, measure time and use files")]
#![allow(clippy::new_without_default, reason = "constructors have effects: directories, namespaces, keys")]

pub mod mounts;
pub mod outcome;

pub use test_servers::DEADLINE;

pub mod api;
pub mod client;
pub mod crowd;
pub mod daemon;
pub mod hostile;
pub mod metrics;
pub mod netns;
pub mod plugin;
pub mod program;
pub mod runtime;
pub mod shuffle;
