//! Generates the table of the charts' values from `values.yaml`: a value's description is the comment above it.

use anyhow::{Context as _, Result};
use serde_json::{Map, Value};

use super::read;
use super::table::{code, head, sentence, table};

/// The charts, and the paths of the values in their `values.yaml`.
pub(super) const CHARTS: [(&str, &str); 2] = [("istio-cni", "/defaults"), ("sidecar-injector", "")];

/// The values of a chart: their defaults, and the comments that describe them.
pub(super) struct Values {
    pub(super) defaults: Map<String, Value>,
    /// Whether the values may also be below `cni`, as in Istio's chart of the node agent.
    pub(super) is_nested: bool,
    comments: Vec<(String, String)>,
}

impl Values {
    /// Reads the values of a chart in the checkout.
    pub(super) fn of(chart: &str, root: &str) -> Result<Self> {
        let path = format!("install/helm/{chart}/values.yaml");
        Self::parse(&read(&path)?, root).context(path)
    }

    pub(super) fn parse(file: &str, root: &str) -> Result<Self> {
        let values: Value = serde_saphyr::from_str(file)?;
        let comments = comments(file, root.trim_start_matches('/'));
        let defaults = values.pointer(root).and_then(Value::as_object).cloned();
        let defaults = defaults.with_context(|| format!("the values have no map {root}"))?;
        Ok(Self { defaults, is_nested: !root.is_empty(), comments })
    }

    /// Returns the comment above a value; empty if there is none.
    pub(super) fn comment(&self, path: &str) -> &str {
        self.comments.iter().find(|(known, _)| known == path).map(|(_, comment)| &**comment).unwrap_or_default()
    }
}

pub(super) fn page() -> Result<String> {
    let mut text = head("Chart values", "the charts' `values.yaml`");
    for (chart, root) in CHARTS {
        let values = Values::of(chart, root)?;
        let mut rows = Vec::new();
        for (key, value) in &values.defaults {
            collect(value, key, &values, &mut rows);
        }
        text.push_str(&format!("## {chart}\n\n"));
        text.push_str(&table(["Value", "Default", "Description"], &rows));
    }
    Ok(text.trim_end().to_owned() + "\n")
}

/// Returns the comment directly above each key, with the key's path below `root`.
fn comments(file: &str, root: &str) -> Vec<(String, String)> {
    let (mut above, mut comment, mut found) = (Vec::<(usize, &str)>::new(), String::new(), Vec::new());
    for line in file.lines() {
        let (indent, line) = (line.len() - line.trim_start().len(), line.trim_start());
        if let Some(words) = line.strip_prefix('#') {
            add(&mut comment, words);
            continue;
        }
        if let Some((key, _)) = line.split_once(':').filter(|(key, _)| !key.starts_with('-')) {
            above.retain(|(outer, _)| *outer < indent);
            above.push((indent, key));
            let path: Vec<&str> = above.iter().map(|(_, key)| *key).filter(|key| *key != root).collect();
            found.push((path.join("."), comment.trim().to_owned()));
        }
        comment.clear();
    }
    found
}

/// Appends a line to a comment. An indented line is an element of a list: a word, and its meaning after two spaces.
fn add(comment: &mut String, line: &str) {
    let element = line.strip_prefix("   ").and_then(|line| line.trim().split_once("  "));
    let text = match element {
        Some((word, meaning)) => format!("`{word}`: {};", meaning.trim()),
        None => line.trim().to_owned(),
    };
    if element.is_none() && comment.ends_with(';') {
        comment.pop();
        comment.push('.');
    }
    comment.push(' ');
    comment.push_str(&text);
}

/// Adds a row for each value that is not a map, and for empty maps. A map's comment is a separate row.
fn collect(value: &Value, path: &str, values: &Values, rows: &mut Vec<[String; 3]>) {
    let comment = values.comment(path);
    match value.as_object().filter(|map| !map.is_empty()) {
        Some(map) => {
            if !comment.is_empty() {
                rows.push([code(path), String::new(), sentence(comment)]);
            }
            for (key, value) in map {
                collect(value, &format!("{path}.{key}"), values, rows);
            }
        }
        None => rows.push([code(path), code(&value.to_string()), sentence(comment)]),
    }
}

#[test]
fn comments_belong_to_the_key_below_them() {
    let file = "# Head\nroot:\n  # One,\n  # two.\n  a:\n    b: 1\n    # One of:\n    #   x   this\n    #   y   that\n    # Empty: x.\n    c: 2\n";
    let found = comments(file, "root");
    let of = |path: &str| found.iter().find(|(known, _)| known == path).map(|(_, comment)| &**comment);
    assert_eq!(
        (of("a"), of("a.b"), of("a.c")),
        (Some("One, two."), Some(""), Some("One of: `x`: this; `y`: that. Empty: x."))
    );
}
