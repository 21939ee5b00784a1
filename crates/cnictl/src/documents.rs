//! Splits input into YAML documents and replaces the documents that change; all other documents keep their text.
//!
//! `kube_inject` and `dapr_inject` call [`each`] with a function that changes a document.

use inject::{documents, is_empty, read, write};
use serde_json::Value;

use super::Error;

/// Returns all documents, each followed by a separator. `change` takes the number and the value of a document, and
/// returns the new value, or `None` to keep the text.
pub(super) fn each(
    input: &str,
    mut change: impl FnMut(usize, Value) -> Result<Option<Value>, Error>,
) -> Result<String, Error> {
    let mut output = String::with_capacity(input.len() * 4);
    for (number, text) in numbered(input)? {
        let changed = if is_empty(text) { None } else { change(number, parse(number, text)?)? };
        match changed {
            Some(document) => {
                output += &write(document).map_err(|cause| Error::WriteDocument { number, cause: Box::new(cause) })?;
            }
            None if text.ends_with('\n') => output.extend([text, "---\n"]),
            None => output.extend([text, "\n---\n"]),
        }
    }
    Ok(output)
}

/// Parses all documents.
pub(super) fn all(input: &str) -> Result<Vec<Value>, Error> {
    numbered(input)?.filter(|(_, text)| !is_empty(text)).map(|(number, text)| parse(number, text)).collect()
}

/// Splits into documents, numbered from 1.
fn numbered(input: &str) -> Result<impl Iterator<Item = (usize, &str)>, Error> {
    Ok(documents(input)?.into_iter().enumerate().map(|(at, text)| (at + 1, text)))
}

fn parse(number: usize, text: &str) -> Result<Value, Error> {
    read(text).map_err(|cause| Error::Document { number, cause })
}
