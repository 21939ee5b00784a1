//! Sidecar injection: decides whether a pod gets a sidecar, and creates the patch that adds it.
//!
//! `webhook` and `istio-cnictl` call this crate, which neither reads files nor calls an API server. Pods stay JSON
//! values whose members keep their order. `istio` implements the injection of Istio's sidecar; the crate `dapr` shares
//! the other modules.

pub mod workload;
pub mod yaml;

mod document;
mod gojson;
mod image;
mod merge;
mod patch;
mod pod;
mod typed;
mod volume;

pub mod istio;

pub use document::{ReadError, Separator, WriteError, documents, is_empty, read, write};
pub use merge::{Error as MergeError, merge_pod};
pub use patch::{Operation, PatchError, apply, diff};
pub use pod::{Record, or_default, record, records};
pub use typed::{Mismatch, Struct};
