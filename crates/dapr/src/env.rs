//! Parses the sidecar's variables in `dapr.io/env` and `dapr.io/env-from-secret`.

use serde_json::{Value, json};

/// The variables of one annotation.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Variables {
    /// All names, including those of dropped variables.
    pub(super) keys: Vec<String>,
    /// The entries of a container's `env`.
    pub(super) list: Vec<Value>,
}

/// Returns a variable, without `value` if the value is empty.
pub(super) fn variable(name: &str, value: &str) -> Value {
    if value.is_empty() { json!({"name": name}) } else { json!({"name": name, "value": value}) }
}

/// Returns a variable whose value is in a Secret, under `key`.
pub(super) fn from_secret(name: &str, secret: &str, key: &str) -> Value {
    let mut reference = json!({});
    if !secret.is_empty() {
        reference["name"] = secret.into();
    }
    reference["key"] = key.into();
    json!({"name": name, "valueFrom": {"secretKeyRef": reference}})
}

/// Returns a variable whose value is the pod's field at `path`.
pub(super) fn from_field(name: &str, path: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
}

/// Parses `dapr.io/env`: comma-separated `NAME=value`. A comma that no `NAME=` follows is part of the value.
pub(super) fn parse(text: &str) -> Variables {
    let mut variables = Variables::default();
    for (name, value) in assignments(text) {
        variables.keys.push(name.to_owned());
        variables.list.push(variable(name, value));
    }
    variables
}

/// Parses `dapr.io/env-from-secret`: `NAME=secret:key`, or `NAME=secret` if the key has the Secret's name.
pub(super) fn parse_from_secret(text: &str) -> Variables {
    let mut variables = Variables::default();
    for (name, value) in assignments(text) {
        variables.keys.push(name.to_owned());
        let value = value.trim();
        let (secret, key) = value.split_once(':').unwrap_or((value, value));
        if !key.contains(':') {
            variables.list.push(from_secret(name, secret.trim(), key.trim()));
        }
    }
    variables
}

/// Parses `dapr.io/env` as release 1.4.2 does: every comma is a separator, and values contain no `=`.
pub(super) fn parse_1_4_2(text: &str) -> Vec<Value> {
    let pairs = text.split(',').filter_map(|piece| piece.trim().split_once('='));
    pairs.filter(|(_, value)| !value.contains('=')).map(|(name, value)| variable(name, value)).collect()
}

fn assignments(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let commas = text.match_indices(',').map(|(at, _)| at);
        let end = commas.into_iter().find(|&at| starts_assignment(&text[at + 1..]));
        rest = end.map(|at| &text[at + 1..]);
        Some(text[..end.unwrap_or(text.len())].trim())
    })
    .filter_map(|piece| piece.split_once('='))
}

/// Whether the string starts with `NAME=`, after ASCII white space.
fn starts_assignment(text: &str) -> bool {
    let text = text.trim_start_matches(['\t', '\n', '\x0c', '\r', ' ']);
    let name = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(name);
    rest.starts_with('=') && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}
