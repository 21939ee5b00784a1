//! What programs report to operators: the findings of checks, and the state of a node.
//!
//! The node agent serves a node's state and checks its node; `istio-cnictl` reads the former and checks a cluster. Pure.

pub mod findings;
pub mod node;

pub use findings::{Advice, Finding, Findings, Outcome, page};
