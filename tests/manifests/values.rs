//! That each value of a chart has an effect, and that by default it renders its manifest.

use std::fs;

use serde_json::{Value, json};

use crate::helm::{AGENT, Chart, INJECTOR};

pub(crate) fn render_the_manifests() {
    for chart in [AGENT, INJECTOR] {
        let name = chart.name;
        assert!(
            chart.text(&[]) == chart.manifest(),
            "{name} renders another manifest: `make manifests` writes it anew"
        );
    }
}

/// Changing any one value changes what is rendered with one of these settings at least, which switch on what can be: none
/// is a leftover. `root` is where the values are in their file, `other` what a value can be that is not arbitrary.
pub(crate) fn have_effects(chart: Chart, root: &str, settings: &[&[&str]], other: fn(&str) -> Option<Value>) {
    let values = fs::read_to_string(format!("{}/values.yaml", chart.directory())).unwrap();
    let values: Value = serde_saphyr::from_str(&values).unwrap();
    let settings: Vec<(&[&str], String)> = settings.iter().map(|on| (*on, chart.text(on))).collect();
    let mut leaves = Vec::new();
    collect(values.pointer(root).unwrap(), String::new(), &mut leaves);
    assert!(leaves.len() > 40, "{leaves:?}");
    for (path, value) in leaves {
        let has_effect = |(on, before): &(&[&str], String)| {
            // What is on already is turned off again, and may then be missed.
            let is_on = on.iter().any(|set| set.starts_with(&format!("{path}=")));
            let changed = if is_on { value.clone() } else { other(&path).unwrap_or_else(|| another(&value)) };
            let after = chart.try_text(&[*on, &[&*format!("{path}={changed}")]].concat());
            after.map_or(is_on, |after| after != *before)
        };
        assert!(settings.iter().any(has_effect), "{path} changes nothing");
    }
}

/// Paths of all values that are no maps, or empty ones.
fn collect(value: &Value, path: String, leaves: &mut Vec<(String, Value)>) {
    match value.as_object().filter(|map| !map.is_empty()) {
        Some(map) => map.iter().for_each(|(key, value)| {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            collect(value, path, leaves);
        }),
        None => leaves.push((path, value.clone())),
    }
}

/// Another value of the same kind.
fn another(value: &Value) -> Value {
    match value {
        Value::Bool(on) => json!(!on),
        Value::Number(number) => json!(number.as_i64().unwrap() + 1),
        Value::Array(list) if list.is_empty() => json!(["x"]),
        Value::Array(_) => json!([]),
        Value::Object(_) => json!({"x": "y"}),
        _ => json!("other"),
    }
}
