//! Parses query parameters with label and field selectors.

use std::collections::BTreeMap;

use serde_json::Value;

/// The field selector for a pod's node.
pub(super) const NODE: &str = "spec.nodeName";

/// The query parameters of a request.
#[derive(Debug, Clone, Default)]
pub(super) struct Query {
    parameters: BTreeMap<String, String>,
    labels: Vec<Term>,
    fields: Vec<Term>,
}

/// A term of a selector: `a=b`, `a==b`, `a!=b`, `a` or `!a`.
#[derive(Debug, Clone)]
enum Term {
    Is(String, String),
    IsNot(String, String),
    Exists(String),
    Lacks(String),
}

impl Query {
    pub(super) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        let parameters: BTreeMap<_, _> = pairs.map(|(key, value)| (decode(key), decode(value))).collect();
        let terms = |key: &str| {
            let text = parameters.get(key).map(String::as_str).unwrap_or_default();
            text.split(',').map(str::trim).filter(|term| !term.is_empty()).map(Term::parse).collect()
        };
        Self { labels: terms("labelSelector"), fields: terms("fieldSelector"), parameters }
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.parameters.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn is(&self, key: &str) -> bool {
        matches!(self.get(key), Some("true" | "1"))
    }

    pub(super) fn number(&self, key: &str) -> Option<usize> {
        self.get(key)?.parse().ok()
    }

    /// Returns the node to which the field selector limits the query.
    pub(super) fn node(&self) -> Option<&str> {
        self.fields.iter().find_map(|term| match term {
            Term::Is(key, node) if key == NODE && !node.is_empty() => Some(node.as_str()),
            _ => None,
        })
    }

    /// Whether both selectors match.
    pub(super) fn selects(&self, object: &Value) -> bool {
        let label = |key: &str| object["metadata"]["labels"][key].as_str();
        let field = |path: &str| Some(field(object, path).unwrap_or_default());
        self.labels.iter().all(|term| term.holds(label)) && self.fields.iter().all(|term| term.holds(field))
    }
}

/// Returns a string field by its path.
pub(super) fn field<'o>(object: &'o Value, path: &str) -> Option<&'o str> {
    path.split('.').try_fold(object, |value, part| value.get(part))?.as_str()
}

impl Term {
    fn parse(term: &str) -> Self {
        if let Some((key, value)) = term.split_once("!=") {
            return Self::IsNot(key.to_owned(), value.to_owned());
        }
        if let Some((key, value)) = term.split_once('=') {
            return Self::Is(key.to_owned(), value.trim_start_matches('=').to_owned());
        }
        match term.strip_prefix('!') {
            Some(key) => Self::Lacks(key.to_owned()),
            None => Self::Exists(term.to_owned()),
        }
    }

    fn holds<'o>(&self, value: impl Fn(&str) -> Option<&'o str>) -> bool {
        match self {
            Self::Is(key, wanted) => value(key) == Some(wanted.as_str()),
            Self::IsNot(key, unwanted) => value(key) != Some(unwanted.as_str()),
            Self::Exists(key) => value(key).is_some(),
            Self::Lacks(key) => value(key).is_none(),
        }
    }
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match (byte, hex) {
            (b'%', Some(decoded)) => {
                bytes.push(decoded);
                rest = &after[2..];
                continue;
            }
            (b'+', _) => bytes.push(b' '),
            _ => bytes.push(*byte),
        }
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
