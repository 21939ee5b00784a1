//! Test support that uses the node agent: a repair controller that runs in the test, and a double of ztunnel.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]
#![allow(clippy::disallowed_methods, reason = "tests start processes, measure time and use files")]
#![allow(clippy::new_without_default, reason = "constructors have effects: directories, namespaces, keys")]

pub mod repair;
pub mod ztunnel;
