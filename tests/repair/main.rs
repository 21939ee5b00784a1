//! The repair controller with an API server double that fails on demand, over real HTTP.

#![expect(clippy::disallowed_methods, reason = "tests measure time and read files")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

#[path = "../support/api/server.rs"]
mod api;

#[path = "../support/repair.rs"]
mod stage;

mod brakes;
mod double;
mod faults;
mod modes;
mod storm;
mod watchdog;
