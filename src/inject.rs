//! Puts sidecars into pods: decision, template, merge, patch.
//!
//! `webhook` and `istio-cnictl` call it. It neither reads files nor asks an API server; pods stay ordered JSON.
//! What is here every profile shares; `istio` and `dapr` own what their injection means.

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
pub(crate) use pod::{Record, or_default, record, records};

pub use patch::{Misfit, Operation, apply, diff};
pub use selector::Selector;
pub use typed::{Mismatch, Struct};
pub use workload::Invalid;
