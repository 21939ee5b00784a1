//! Test support that several suites, benches and tools share: doubles, namespaces, container runtimes, cases.
//!
//! Functions panic or return errors for the test to report. Nothing here asserts a property of the programs under test.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]
#![allow(clippy::disallowed_methods, reason = "tests start processes, measure time and use files")]
#![allow(clippy::new_without_default, reason = "constructors have effects: directories, namespaces, keys")]

use std::time::Duration;

pub mod mounts;
pub mod outcome;

/// The time limit of an expected condition. A condition that comes true ends its wait at once, so the limit is far beyond
/// what the slowest machine needs.
pub const DEADLINE: Duration = Duration::from_secs(120);

pub mod admission;
pub mod api;
pub mod cases;
pub mod client;
pub mod crowd;
pub mod daemon;
pub mod hostile;
pub mod metrics;
pub mod netns;
pub mod plugin;
pub mod port;
pub mod program;
pub mod repair;
pub mod runtime;
pub mod servers;
pub mod shuffle;
pub mod ztunnel;
