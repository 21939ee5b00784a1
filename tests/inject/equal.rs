//! Equality of objects as the API server sees them: zeroes that Go writes or leaves out mean the same, quantities have one
//! spelling, the order of lists counts.

use libtest_mimic::Failed;
use serde_json::Value;

/// Fields that are pointers in Go's types: their zeroes are said on purpose.
const POINTERS: [&str; 8] = [
    "allowPrivilegeEscalation",
    "fsGroup",
    "optional",
    "privileged",
    "readOnlyRootFilesystem",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
];

/// Annotations whose value is JSON that is compared as such.
const OVERRIDES: &str = "proxy.istio.io/overrides";

/// Fails with the first places that differ.
pub(crate) fn same(expected: &Value, actual: &Value) -> Result<(), Failed> {
    let (expected, actual) = (normal(expected.clone()), normal(actual.clone()));
    let mut differences = Vec::new();
    compare("", &expected, &actual, &mut differences);
    match differences.is_empty() {
        true => Ok(()),
        false => Err(Failed::from(format!("{} differences:\n{}", differences.len(), differences.join("\n")))),
    }
}

/// An object without zeroes, with quantities and embedded JSON in one spelling.
fn normal(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                match (key.as_str(), &*field) {
                    ("limits" | "requests", Value::Object(_)) => quantities(field),
                    (OVERRIDES, Value::String(text)) => *field = serde_json::from_str(text).unwrap_or(Value::Null),
                    _ => {}
                }
                *field = normal(field.take());
            }
            fields.retain(|key, field| !is_zero(field) || (POINTERS.contains(&key.as_str()) && !field.is_null()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = normal(item.take())),
        _ => {}
    }
    value
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// Thousandths and 1024ths as large as they can be.
fn quantities(resources: &mut Value) {
    for quantity in resources.as_object_mut().into_iter().flatten().map(|(_, quantity)| quantity) {
        let text = quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned);
        let whole = |suffix: &str, unit: u64, larger: &str| {
            let number: u64 = text.strip_suffix(suffix)?.parse().ok()?;
            number.is_multiple_of(unit).then(|| format!("{}{larger}", number / unit))
        };
        *quantity = whole("m", 1000, "").or_else(|| whole("Mi", 1024, "Gi")).unwrap_or(text.clone()).into();
    }
}

fn compare(path: &str, expected: &Value, actual: &Value, differences: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(e), Value::Object(a)) => {
            let keys = e.keys().chain(a.keys().filter(|key| !e.contains_key(*key)));
            let absent = Value::Null;
            for key in keys {
                let side = |fields: &serde_json::Map<String, Value>| fields.get(key).unwrap_or(&absent).clone();
                compare(&format!("{path}/{key}"), &side(e), &side(a), differences);
            }
        }
        (Value::Array(e), Value::Array(a)) if e.len() == a.len() => {
            for (at, (e, a)) in e.iter().zip(a).enumerate() {
                compare(&format!("{path}/{at}"), e, a, differences);
            }
        }
        (e, a) if e == a => {}
        (e, a) => differences.push(format!("  {path}\n    expected {e}\n    got      {a}")),
    }
}
