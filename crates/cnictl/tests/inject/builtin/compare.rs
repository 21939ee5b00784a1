//! Differences between two pods, by paths that name containers, variables and volumes.

use std::fmt;

use inject::Struct;
use libtest_mimic::Failed;
use serde_json::Value;

/// A difference: the path, and the values of Istio's pod and of ours.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) path: String,
    expected: Value,
    found: Value,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n    expected {}\n    found    {}", self.path, self.expected, self.found)
    }
}

/// Compares two pods as the API server stores them.
pub(crate) fn differences(expected: Value, found: Value) -> Result<Vec<Difference>, Failed> {
    let pod = Struct::named("core.Pod").ok_or("the table has no pod")?;
    let mut differences = Vec::new();
    compare("", &pod.canonical(expected)?, &pod.canonical(found)?, &mut differences);
    Ok(differences)
}

/// Adds the differences of two values. Items with names are compared by name, and the order of the names separately.
pub(crate) fn compare(path: &str, expected: &Value, found: &Value, differences: &mut Vec<Difference>) {
    match (expected, found) {
        (Value::Object(e), Value::Object(f)) => {
            for key in e.keys().chain(f.keys().filter(|key| !e.contains_key(*key))) {
                let at = |side: &serde_json::Map<String, Value>| side.get(key).cloned().unwrap_or_default();
                compare(&format!("{path}/{key}"), &at(e), &at(f), differences);
            }
        }
        (Value::Array(e), Value::Array(f)) => match (names(e), names(f)) {
            (Some(expected), Some(found)) => {
                if expected != found {
                    add(&format!("{path}/order"), &expected.clone().into(), &found.clone().into(), differences);
                }
                for (at, name) in expected.iter().enumerate() {
                    if let Some(other) = found.iter().position(|found| found == name) {
                        compare(&format!("{path}/{name}"), &e[at], &f[other], differences);
                    }
                }
            }
            _ if e.len() == f.len() => {
                e.iter()
                    .zip(f)
                    .enumerate()
                    .for_each(|(at, (e, f))| compare(&format!("{path}/{at}"), e, f, differences));
            }
            _ => add(path, expected, found, differences),
        },
        (e, f) if e == f => {}
        _ => add(path, expected, found, differences),
    }
}

fn add(path: &str, expected: &Value, found: &Value, differences: &mut Vec<Difference>) {
    differences.push(Difference { path: path.to_owned(), expected: expected.clone(), found: found.clone() });
}

/// Returns the names of all items, if all have names and the names are unique.
fn names(items: &[Value]) -> Option<Vec<String>> {
    let names: Option<Vec<String>> =
        items.iter().map(|item| item.get("name").and_then(Value::as_str).map(str::to_owned)).collect();
    let names = names.filter(|names| !names.is_empty())?;
    let is_unique = names.iter().collect::<std::collections::BTreeSet<_>>().len() == names.len();
    is_unique.then_some(names)
}
