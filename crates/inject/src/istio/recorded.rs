//! The annotations in which an injection records what it did: `sidecar.istio.io/status` and `proxy.istio.io/overrides`.
//!
//! A later injection removes what they name. A record that no injection writes is refused: with a lenient reader, it
//! would remove what the author wrote. Pure.

use gotemplate::{Budget, Exceeded};
use serde_json::Value;

use crate::{gojson, pod};

/// An annotation for the records of injections, with a value that no injection writes.
#[derive(Debug, thiserror::Error)]
#[error(
    "annotation {annotation:?} is no record of an injection: {reason}; remove the annotation if the pod has no sidecar, or restore it"
)]
pub struct Damaged {
    annotation: &'static str,
    reason: Reason,
}

/// Why an annotation is not a record of an injection.
#[derive(Debug, thiserror::Error)]
pub(super) enum Reason {
    #[error("it is not JSON: {0}")]
    Json(serde_json::Error),
    #[error("it is {found}, not a map")]
    NoMap { found: &'static str },
    #[error("{member:?} is {found}, not {expected}")]
    Member { member: &'static str, found: &'static str, expected: &'static str },
    #[error("element {at} of {member:?} is not {expected}")]
    Element { member: &'static str, at: usize, expected: &'static str },
    #[error("\"before\" cannot be merged into the pod: {0}")]
    Before(crate::merge::Error),
    #[error("it names all applications ({0}) as added by an injection, so that none would be left")]
    Applications(String),
}

impl Reason {
    pub(super) fn of(self, annotation: &'static str) -> Damaged {
        Damaged { annotation, reason: self }
    }
}

/// Returns the map in an annotation; `None` if the annotation is absent or `null`.
///
/// # Errors
/// The budget is spent. The inner error: the annotation is not a map in JSON.
pub(super) fn map(
    pod: &Value,
    annotation: &'static str,
    budget: &mut Budget,
) -> Result<Result<Option<Value>, Damaged>, Exceeded> {
    let Some(text) = pod::annotation(pod, annotation) else { return Ok(Ok(None)) };
    Ok(match gojson::decode::<Value>(text, budget)? {
        Ok(Value::Null) => Ok(None),
        Ok(map @ Value::Object(_)) => Ok(Some(map)),
        Ok(other) => Err(Reason::NoMap { found: kind(&other) }.of(annotation)),
        Err(error) => Err(Reason::Json(error).of(annotation)),
    })
}

/// Checks a member of a record, which may be absent or null.
///
/// # Errors
/// The member is not as `expected`.
pub(super) fn member(
    record: &Value,
    annotation: &'static str,
    member: &'static str,
    is_expected: impl Fn(&Value) -> bool,
    expected: &'static str,
) -> Result<(), Damaged> {
    match record.get(member) {
        None | Some(Value::Null) => Ok(()),
        Some(value) if is_expected(value) => Ok(()),
        Some(value) => Err(Reason::Member { member, found: kind(value), expected }.of(annotation)),
    }
}

/// Returns the names in a list of a record.
///
/// # Errors
/// The member is not a list of names.
pub(super) fn names(record: &Value, annotation: &'static str, list: &'static str) -> Result<Vec<String>, Damaged> {
    member(record, annotation, list, Value::is_array, "a list")?;
    let name = |(at, item): (usize, &Value)| match item.as_str() {
        Some(name) => Ok(name.to_owned()),
        None => Err(Reason::Element { member: list, at, expected: "a name" }.of(annotation)),
    };
    pod::list(record, list).iter().enumerate().map(name).collect()
}

/// Checks that the items of a list in a record are containers.
///
/// # Errors
/// The member is not a list, or an item has no name.
pub(super) fn items(record: &Value, annotation: &'static str, list: &'static str) -> Result<(), Damaged> {
    member(record, annotation, list, Value::is_array, "a list")?;
    match pod::list(record, list).iter().position(|item| pod::name(item).is_empty()) {
        Some(at) => Err(Reason::Element { member: list, at, expected: "a container with a name" }.of(annotation)),
        None => Ok(()),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

#[cfg(test)]
mod tests {
    use contract::annotation::{OVERRIDES, STATUS};
    use serde_json::json;

    use super::super::overrides::Overrides;
    use super::super::status::Status;
    use super::*;

    /// Returns the error for this value as status, and as overrides; `None` if it is accepted.
    fn refusals(text: &str) -> [Option<String>; 2] {
        let budget = &mut Budget::default();
        let of = |name: &str| json!({"metadata": {"annotations": {name: text}}});
        let status = Status::of(&of(STATUS), budget).err().map(|error| error.to_string());
        [status, Overrides::of(&of(OVERRIDES), budget).err().map(|error| error.to_string())]
    }

    #[test]
    fn a_record_that_no_injection_writes_is_refused_with_its_place() {
        let refused = |at: usize, text: &str, reason: &str| {
            let found = refusals(text)[at].clone().unwrap_or_default();
            let start = format!("annotation {:?} is no record of an injection: {reason}", [STATUS, OVERRIDES][at]);
            assert!(found.starts_with(&start), "{text}: {found:?}");
        };
        for at in 0..2 {
            refused(at, "injected", "it is not JSON: ");
            refused(at, &"[".repeat(200), "it is not JSON: ");
            refused(at, "[]", "it is a list, not a map; ");
            refused(at, r#"{"containers": "app"}"#, r#""containers" is a text, not a list; "#);
        }
        refused(0, r#"{"volumes": ["a", 5]}"#, r#"element 1 of "volumes" is not a name; "#);
        refused(0, r#"{"before": [], "containers": []}"#, r#""before" is a list, not a map; "#);
        refused(0, r#"{"settings": 1}"#, r#""settings" is a number, not a text; "#);
        refused(1, r#"{"initContainers": [{}]}"#, r#"element 0 of "initContainers" is not a container with a name; "#);
    }

    #[test]
    fn null_is_absent() {
        assert_eq!(refusals("null"), [None, None]);
        assert_eq!(refusals(r#"{"containers": null, "initContainers": null, "before": null}"#), [None, None]);
    }
}
