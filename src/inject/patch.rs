//! JSON patch (RFC 6902): the operations that an answer to a review consists of.

use serde::Serialize;
use serde_json::Value;

/// One step of a patch.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Operation {
    /// Sets a member, or inserts before a place of a list (`-`: at its end).
    Add {
        /// JSON pointer.
        path: String,
        /// What is put there.
        value: Value,
    },
}
