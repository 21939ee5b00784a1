//! Checks that each value of a chart has an effect, and that the default values render the manifest.

use serde_json::{Value, json};

use crate::helm::{AGENT, Chart, INJECTOR};

pub(crate) fn render_the_manifests() {
    for chart in [AGENT, INJECTOR] {
        let name = chart.name;
        assert!(chart.text(&[]) == chart.manifest(), "{name}: the manifest is not current; run `make manifests`");
    }
}

/// Fails if a value of the chart has no effect: changing it must change the output for at least one of `settings`, sets
/// of values that enable optional parts. `other` returns the value to test with if an arbitrary one would be without
/// effect.
pub(crate) fn have_effects(chart: Chart, settings: &[&[&str]], other: fn(&str) -> Option<Value>) {
    let settings: Vec<(&[&str], String)> = settings.iter().map(|on| (*on, chart.text(on))).collect();
    let mut leaves = Vec::new();
    collect(&chart.defaults(), String::new(), &mut leaves);
    assert!(leaves.len() > 40, "{leaves:?}");
    for (path, value) in leaves {
        let has_effect = |(on, before): &(&[&str], String)| {
            // If the settings set the value, it is changed back to its default. The chart may then fail, which is an effect as well.
            let is_on = on.iter().any(|set| set.starts_with(&format!("{path}=")));
            let changed =
                if is_on { value.clone() } else { other(&path).unwrap_or_else(|| another(chart, &path, &value)) };
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

/// Returns a value of the same kind that differs from the default, according to the chart's schema.
fn another(chart: Chart, path: &str, default: &Value) -> Value {
    let mut schema = &chart.schema()["properties"];
    let mut found = &Value::Null;
    for name in path.split('.') {
        found = if schema[name].is_null() { &found["additionalProperties"] } else { &schema[name] };
        schema = &found["properties"];
    }
    example(found, default)
}

/// Returns a value that a schema permits and that differs from the default.
fn example(schema: &Value, default: &Value) -> Value {
    let list = |key: &str| schema.pointer(key).and_then(Value::as_array).into_iter().flatten();
    if let Some(word) = list("/then/enum").find(|word| *word != default && **word != "") {
        return word.clone();
    }
    if let Some(example) = list("/examples").find(|example| *example != default) {
        return example.clone();
    }
    match schema["type"][0].as_str().or(schema["type"].as_str()) {
        Some("boolean") => json!(!default.as_bool().unwrap_or_default()),
        Some("integer") => json!(default.as_i64().unwrap_or_default() + 1),
        Some("array") if default.as_array().is_some_and(|list| !list.is_empty()) => json!([]),
        Some("array") => json!([example(&schema["items"], &Value::Null)]),
        Some("object") => match schema["properties"].as_object().and_then(|known| known.iter().next()) {
            Some((name, schema)) => json!({ name: example(schema, &Value::Null) }),
            None => json!({ "x": example(&schema["additionalProperties"], &Value::Null) }),
        },
        _ => json!("other"),
    }
}
