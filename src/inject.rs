//! Sidecar injection: decision, template, merge, patch.
//!
//! `webhook` and `istio-cnictl` call it. It neither reads files nor calls an API server; pods stay JSON in their order.
//! `istio` and `dapr` own their injection and share the other modules.

pub mod yaml;

mod document;
mod gojson;
mod merge;
mod patch;
mod pod;
mod quantity;
mod selector;
mod typed;
mod workload;

pub mod dapr;
pub mod istio;

pub use document::{ReadError, Separator, WriteError, documents, is_empty, read, write};
pub use merge::{Error as MergeError, merge_pod};
pub use patch::{Operation, PatchError, apply, diff};
pub(crate) use pod::{Record, or_default, record, records};
pub use selector::Selector;
pub use typed::{Mismatch, Struct};
pub use workload::Invalid;
