//! Compares pods as the API server stores them: each field by its type, lists by order.

use inject::Struct;
use libtest_mimic::Failed;
use serde_json::Value;

/// Fails with the paths of all differences.
pub(crate) fn same(expected: &Value, actual: &Value) -> Result<(), Failed> {
    let pod = Struct::named("core.Pod").ok_or("the table has no pod")?;
    let canonical = |value: &Value| pod.canonical(value.clone());
    let mut differences = Vec::new();
    compare("", &canonical(expected)?, &canonical(actual)?, &mut differences);
    match differences.is_empty() {
        true => Ok(()),
        false => Err(Failed::from(format!("{} differences:\n{}", differences.len(), differences.join("\n")))),
    }
}

fn compare(path: &str, expected: &Value, actual: &Value, differences: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(e), Value::Object(a)) => {
            for key in e.keys().chain(a.keys().filter(|key| !e.contains_key(*key))) {
                match (e.get(key), a.get(key)) {
                    (Some(e), Some(a)) => compare(&format!("{path}/{key}"), e, a, differences),
                    (e, a) => differences.push(difference(&format!("{path}/{key}"), e, a)),
                }
            }
        }
        (Value::Array(e), Value::Array(a)) if e.len() == a.len() => {
            for (at, (e, a)) in e.iter().zip(a).enumerate() {
                compare(&format!("{path}/{at}"), e, a, differences);
            }
        }
        (e, a) if e == a => {}
        (e, a) => differences.push(difference(path, Some(e), Some(a))),
    }
}

fn difference(path: &str, expected: Option<&Value>, actual: Option<&Value>) -> String {
    let text = |side: Option<&Value>| side.map_or_else(|| "nothing".to_owned(), Value::to_string);
    format!("  {path}\n    expected {}\n    got      {}", text(expected), text(actual))
}
