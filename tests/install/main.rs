//! Tests of the installer on directories of a real file system: a crash before each step, a power cut after each system
//! call, full and read-only file systems, other writers. README.md in this directory lists the intended differences
//! from Istio.

#![expect(clippy::disallowed_methods, reason = "tests read and write files and measure time")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

mod crashes;
mod exchange;
mod faults;
mod lifecycle;
mod neighbours;
mod networks;
mod node;
mod power;
mod primary;
mod programs;
mod reconcile;
mod removal;
mod unjudged;
mod validity;
