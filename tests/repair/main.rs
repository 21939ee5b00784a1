//! Tests of the repair controller with an API server double that fails on demand, over real HTTP.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod double;
mod faults;
mod limits;
mod modes;
mod storm;
mod watchdog;
