//! Puts sidecars into pods: decision, template, merge, patch.
//!
//! `webhook` and `istio-cnictl` call it. It neither reads files nor asks an API server; pods stay ordered JSON.

pub mod dapr;
mod patch;

pub use patch::Operation;
