//! Several YAML documents in one text, cut where Kubernetes' reader cuts them, and written as its tools write.
//!
//! Cutting parses nothing: a document that nobody injects passes as the very text that it was.

use serde_json::Value;

use super::template::{self, Budget, Limits, write_yaml};
use super::typed;
use super::yaml::LIMIT;

/// The documents of `text`, each without its separator line.
pub fn documents(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let after = at + line.len();
        if line.strip_prefix("---").is_some_and(|rest| rest.trim().is_empty() || rest.starts_with([' ', '\t', '#'])) {
            found.push(&text[start..at]);
            start = after;
        }
        at = after;
    }
    found.push(&text[start..]);
    found
}

/// Whether a document holds nothing but comments and blank lines.
pub fn is_empty(document: &str) -> bool {
    document.lines().all(|line| {
        let line = line.trim_start();
        line.is_empty() || line.starts_with('#')
    })
}

/// A document as Kubernetes' tools write it, with the separator that Istio's tool puts behind each.
///
/// # Errors
/// The document is larger than what is read as one.
pub fn write(document: Value) -> Result<String, Oversized> {
    let document = typed::written(document);
    let mut budget = Budget::new(Limits { bytes: LIMIT, ..Limits::default() });
    let text = write_yaml(&template::Value::json(&document), &mut budget)?;
    Ok(format!("{text}---\n"))
}

/// A document that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("the injected document cannot be written: {0}")]
pub struct Oversized(#[from] template::Reason);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_lines_of_their_own() {
        assert_eq!(documents("a: 1\n---\nb: |\n  ---\n--- # two\nc: ---\n"), ["a: 1\n", "b: |\n  ---\n", "c: ---\n"]);
        assert_eq!(documents("---\na: 1"), ["", "a: 1"]);
        assert!(is_empty("# only\n\n  # comments\n") && !is_empty("# one\na: 1"));
    }
}
