//! Converts plain scalars to strings, numbers, booleans and nulls.
//!
//! `block` and `flow` call this module, which leaves scalars whose type is not obvious to the library.

use std::cell::Cell;

use serde_json::Value;

/// The maximum number of scalars of a document that the library reads one by one, each with a new reader. A document
/// with more of them is left to the library as a whole, within the budget.
const MAX_LIBRARY_CALLS: u32 = 256;

/// The scalars of one document.
#[derive(Debug)]
pub(super) struct Scalars {
    /// The number of calls of the library that remain.
    library_calls: Cell<u32>,
}

impl Default for Scalars {
    fn default() -> Self {
        Self { library_calls: Cell::new(MAX_LIBRARY_CALLS) }
    }
}

impl Scalars {
    /// Returns the value of a plain scalar, or `None` if only the library can read the document.
    pub(super) fn value(&self, text: &str) -> Option<Value> {
        let bytes = text.as_bytes();
        match bytes.first()? {
            _ if is_text(text) => Some(Value::String(text.to_owned())),
            b'0'..=b'9'
                if bytes.iter().all(u8::is_ascii_digit)
                    && bytes.len() < 18
                    && (bytes[0] != b'0' || bytes.len() == 1) =>
            {
                text.parse::<u64>().ok().map(Value::from)
            }
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => self.library(text),
            b'-' | b'+' | b'.' if bytes.get(1).is_some_and(u8::is_ascii_digit) => self.library(text),
            _ => None,
        }
    }

    fn library(&self, text: &str) -> Option<Value> {
        match text {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            "null" => Some(Value::Null),
            _ => {
                self.library_calls.set(self.library_calls.get().checked_sub(1)?);
                super::library::value(text).ok().filter(|value| !value.is_object() && !value.is_array())
            }
        }
    }
}

/// Whether a scalar is certainly a string: it starts like a word and is not a keyword, or starts like a number and has
/// letters that no number has.
pub(super) fn is_text(text: &str) -> bool {
    const LONGEST: usize = "infinity".len();
    const WORDS: [&str; 12] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity"];
    match text.as_bytes().first() {
        Some(b'A'..=b'Z' | b'a'..=b'z') => {
            text.len() > LONGEST || !WORDS.iter().any(|word| word.eq_ignore_ascii_case(text))
        }
        Some(b'/' | b'_' | b'$' | b'(') => true,
        Some(b'-') => {
            text.trim_start_matches('-').starts_with(|next: char| next.is_ascii_alphabetic() && !"iInN".contains(next))
        }
        Some(b'0'..=b'9') => {
            text.bytes().any(|byte| matches!(byte, b'g'..=b'h' | b'j'..=b'm' | b'p'..=b'w' | b'G' | b'K' | b'M' | b'/'))
        }
        _ => false,
    }
}

/// Whether a byte may occur in a name: a letter, a digit or a separator.
pub(super) fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/')
}
