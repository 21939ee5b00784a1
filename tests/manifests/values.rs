//! Checks that each value of a chart has an effect, and that the default values render the manifest.

use std::fs;

use serde_json::{Value, json};

use crate::helm::{AGENT, Chart, INJECTOR};

pub(crate) fn render_the_manifests() {
    for chart in [AGENT, INJECTOR] {
        let name = chart.name;
        assert!(chart.text(&[]) == chart.manifest(), "{name}: the manifest is not current; run `make manifests`");
    }
}

/// Fails if a value of the chart has no effect: changing it must change the output for at least one of `settings`, sets
/// of values that enable optional parts. `root` is the path of the values in `values.yaml`. `other` returns the value
/// to test with if an arbitrary one would be invalid or without effect.
pub(crate) fn have_effects(chart: Chart, root: &str, settings: &[&[&str]], other: fn(&str) -> Option<Value>) {
    let values = fs::read_to_string(format!("{}/values.yaml", chart.directory())).unwrap();
    let values: Value = serde_saphyr::from_str(&values).unwrap();
    let settings: Vec<(&[&str], String)> = settings.iter().map(|on| (*on, chart.text(on))).collect();
    let mut leaves = Vec::new();
    collect(values.pointer(root).unwrap(), String::new(), &mut leaves);
    assert!(leaves.len() > 40, "{leaves:?}");
    for (path, value) in leaves {
        let has_effect = |(on, before): &(&[&str], String)| {
            // If the settings set the value, it is changed back to its default. The chart may then fail, which counts
            // as an effect.
            let is_on = on.iter().any(|set| set.starts_with(&format!("{path}=")));
            let changed = if is_on { value.clone() } else { other(&path).unwrap_or_else(|| another(&value)) };
            let after = chart.try_text(&[*on, &[&*format!("{path}={changed}")]].concat());
            after.map_or(is_on, |after| after != *before)
        };
        assert!(settings.iter().any(has_effect), "{path} changes nothing");
    }
}

/// Collects the paths of all values that are not maps, and of empty maps.
fn collect(value: &Value, path: String, leaves: &mut Vec<(String, Value)>) {
    match value.as_object().filter(|map| !map.is_empty()) {
        Some(map) => map.iter().for_each(|(key, value)| {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            collect(value, path, leaves);
        }),
        None => leaves.push((path, value.clone())),
    }
}

/// Returns a different value of the same JSON type.
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
