//! YAML as Kubernetes' own tools read it: what templates render, configuration and documents on the command line.
//!
//! The settings are those of Go's reader: a repeated key counts once, with its last value; `yes` and `on` are booleans,
//! `0644` is octal, and such a key is the text of the
//! value that it stands for. Anything larger than a request may be is refused before it is read.

mod block;
mod flow;
mod node;
mod scalar;
#[cfg(test)]
mod tests;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::options::DuplicateKeyPolicy;

use node::Node;

/// The most text that is read, in bytes: what the API server accepts as one object, and room for a template's comments.
pub const LIMIT: usize = 6 << 20;

/// Why text is no usable YAML.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It exceeds [`LIMIT`].
    #[error("{0} bytes of YAML are more than the {LIMIT} that are read")]
    Large(usize),
    /// It cannot be parsed, or is of another shape than was asked for.
    #[error(transparent)]
    Syntax(Box<serde_saphyr::Error>),
}

/// Reads one document.
///
/// # Errors
/// The text is too large, no YAML, or not of the shape of `T`.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    if text.len() > LIMIT {
        return Err(Error::Large(text.len()));
    }
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| Error::Syntax(Box::new(error)))
}

/// Reads one document as plain value; text without any is null.
///
/// # Errors
/// As [`read`].
pub fn value(text: &str) -> Result<Value, Error> {
    match block::read(text).filter(|_| text.len() <= LIMIT) {
        Some(value) => Ok(value),
        None => whole(text),
    }
}

/// The same by the library alone.
fn whole(text: &str) -> Result<Value, Error> {
    read::<Option<Node>>(text).map(|node| node.map(|Node(value)| value).unwrap_or_default())
}
