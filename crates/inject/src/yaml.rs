//! YAML as Kubernetes' own tools read it: rendered templates, configuration, and documents on the command line.
//!
//! A text is read as by Go's reader: the last value of a repeated key counts, `yes` and `on` are booleans, `0644` is
//! octal, and a key that is not text becomes the text of its value. A text above [`LIMIT`] is refused before it is
//! read.

mod block;
mod flow;
mod forms;
pub mod library;
mod merge_key;
mod node;
mod overflow;
mod scalar;
mod separators;
#[cfg(test)]
mod tests;

use gotemplate::Budget;
use serde_json::Value;

pub use library::{Error, read};

/// The size limit of a text in bytes: the API server's limit for an object, and space for a template's comments.
pub const LIMIT: usize = 6 << 20;

/// Bytes of text that are read in the time of one step.
const BYTES_PER_STEP: usize = 16;
/// Steps for a value: it is read, merged, compared, written and freed.
const STEPS_PER_VALUE: usize = 5;

/// Reads one document as a plain value; an empty text is null.
///
/// # Errors
/// Those of [`read`].
pub fn value(text: &str) -> Result<Value, Error> {
    match block::read(text).filter(|_| text.len() <= LIMIT) {
        Some(value) => Ok(value),
        None => library::value(text),
    }
}

/// Reads one document as [`value`] does, within a budget, since a pod's author may have written parts of it. The budget
/// bounds the document with all repetitions of its aliases.
///
/// # Errors
/// Those of [`read`], and [`Error::Exceeded`].
pub fn value_within(text: &str, budget: &mut Budget) -> Result<Value, Error> {
    budget.step(text.len() / BYTES_PER_STEP)?;
    // One of these bytes precedes each value but the first.
    let values = text.bytes().filter(|byte| matches!(byte, b'\n' | b',' | b':' | b'[' | b'{')).count();
    budget.step(values.saturating_mul(STEPS_PER_VALUE))?;
    match block::read(text).filter(|_| text.len() <= LIMIT) {
        Some(value) => Ok(value),
        None if text.len() > LIMIT => Err(Error::Large(text.len())),
        None => library::value_within(text, budget),
    }
}
