//! Test support that several suites, benches and tools share: doubles, namespaces, container runtimes, cases.
//!
//! Functions panic or return errors for the test to report. Nothing here asserts a property of the programs under test.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]
#![allow(clippy::disallowed_methods, reason = "tests start processes, measure time and use files")]
#![allow(clippy::new_without_default, reason = "constructors have effects: directories, namespaces, keys")]

use std::time::Duration;

pub mod go;
pub mod mounts;
pub mod outcome;
pub mod tier;

/// The time limit of an expected condition. A condition that comes true ends its wait at once, so the limit is far beyond
/// what the slowest machine needs.
pub const DEADLINE: Duration = Duration::from_secs(120);

#[cfg(feature = "daemons")]
pub mod admission;
#[cfg(feature = "daemons")]
pub mod api;
#[cfg(feature = "daemons")]
pub mod cases;
#[cfg(feature = "daemons")]
pub mod client;
#[cfg(feature = "daemons")]
pub mod crowd;
#[cfg(feature = "daemons")]
pub mod daemon;
#[cfg(feature = "daemons")]
pub mod hostile;
#[cfg(feature = "daemons")]
pub mod metrics;
#[cfg(feature = "daemons")]
pub mod netns;
#[cfg(feature = "daemons")]
pub mod plugin;
#[cfg(feature = "daemons")]
pub mod port;
#[cfg(feature = "daemons")]
pub mod program;
#[cfg(feature = "daemons")]
pub mod repair;
#[cfg(feature = "daemons")]
pub mod runtime;
#[cfg(feature = "daemons")]
pub mod servers;
#[cfg(feature = "daemons")]
pub mod shuffle;
#[cfg(feature = "daemons")]
pub mod ztunnel;
