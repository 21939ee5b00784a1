//! What programs report to operators: the findings of checks, and the state of a node.
//!
//! The node agent serves its node's state and checks the node; `istio-cnictl` reads that state and checks a cluster. Pure.

pub mod findings;
pub mod node;

pub use findings::{Advice, Finding, Findings, Outcome, page};
