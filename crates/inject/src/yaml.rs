//! YAML as Kubernetes' own tools read it: rendered templates, configuration, and documents on the command line.
//!
//! YAML is read as by Go's reader: the last value of a repeated key is used, `yes` and `on` are booleans, `0644` is
//! octal, and a key that is not a string is converted to one. A text above [`LIMIT`] is refused before it is read.

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

/// The size limit of a text in bytes: the API server's limit for an object, with some space for a template's comments.
pub const LIMIT: usize = 6 << 20;

/// The number of bytes of text that are charged as one step.
const BYTES_PER_STEP: usize = 16;
/// Steps that are charged for a value: it is read, merged, compared, written and freed.
const STEPS_PER_VALUE: usize = 5;

/// Reads one document as a plain value; an empty text is null.
///
/// # Errors
/// As for [`read`].
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
/// As for [`read`], and [`Error::Exceeded`] if the budget is spent.
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
