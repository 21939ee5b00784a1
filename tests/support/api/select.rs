//! Query parameters, and the label and field selectors among them.

use std::collections::BTreeMap;

use serde_json::Value;

/// The parameters of a request.
#[derive(Debug, Clone, Default)]
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    pub(super) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        Self(pairs.map(|(key, value)| (decode(key), decode(value))).collect())
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn is(&self, key: &str) -> bool {
        matches!(self.get(key), Some("true" | "1"))
    }

    pub(super) fn number(&self, key: &str) -> Option<usize> {
        self.get(key)?.parse().ok()
    }

    /// Whether both selectors match.
    pub(super) fn selects(&self, object: &Value) -> bool {
        let terms = |key: &str| self.get(key).unwrap_or_default().split(',').filter(|term| !term.is_empty());
        let label = |key: &str| object["metadata"]["labels"][key].as_str();
        let field = |path: &str| {
            let value = path.split('.').try_fold(object, |value, part| value.get(part));
            Some(value.and_then(Value::as_str).unwrap_or_default())
        };
        terms("labelSelector").all(|term| holds(term, label)) && terms("fieldSelector").all(|term| holds(term, field))
    }
}

/// `a=b`, `a==b`, `a!=b`, `a`, `!a`
fn holds<'o>(term: &str, value: impl Fn(&str) -> Option<&'o str>) -> bool {
    let term = term.trim();
    if let Some((key, wanted)) = term.split_once("!=") {
        return value(key) != Some(wanted);
    }
    if let Some((key, wanted)) = term.split_once('=') {
        return value(key) == Some(wanted.trim_start_matches('='));
    }
    match term.strip_prefix('!') {
        Some(key) => value(key).is_none(),
        None => value(term).is_some(),
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
