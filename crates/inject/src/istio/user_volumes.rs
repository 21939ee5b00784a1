//! The annotations with volumes and mounts that a pod's author adds to the sidecar, in JSON: a map by name, or a list.

use contract::annotation;
use serde_json::Value;

use crate::typed::Struct;
use crate::{pod, volume};

/// The descriptions of the annotations' valid values.
pub(super) const VOLUMES: &str = "volumes of a pod in JSON, as a map by name or as a list";
pub(super) const MOUNTS: &str = "mounts of volumes in JSON, as a map by the volume's name or as a list";

/// An annotation: its name, the type of its items, the check of an item, and the description of valid values.
type Known = (&'static str, &'static str, fn(&Value) -> Result<(), volume::Invalid>, &'static str);

const KNOWN: [Known; 2] = [
    (annotation::USER_VOLUME, "core.Volume", volume::check, VOLUMES),
    (annotation::USER_VOLUME_MOUNT, "core.VolumeMount", volume::check_mount, MOUNTS),
];

/// Why an annotation for volumes or mounts is refused.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    /// The value is not JSON.
    #[error("annotation {what:?} is not JSON: {error}")]
    Json { what: &'static str, error: serde_json::Error },
    /// The value is neither a map nor a list.
    #[error("annotation {what:?} must be {form}")]
    Form { what: &'static str, form: &'static str },
    /// An item of a list has no name.
    #[error("item {at} of the list in annotation {what:?} has no name")]
    Unnamed { what: &'static str, at: usize },
    /// A member of a map is not a map.
    #[error("{name:?} in annotation {what:?} must be a map of fields")]
    NoMap { what: &'static str, name: String },
    /// The API server would refuse the item of this name.
    #[error("{name:?} in annotation {what:?}: {error}")]
    Item { what: &'static str, name: String, error: volume::Invalid },
}

/// Checks those of the [`KNOWN`] annotations that the pod has.
///
/// # Errors
/// See [`check_text`].
pub(super) fn check(subject: &Value) -> Result<(), Invalid> {
    let annotated = KNOWN.iter().filter_map(|(what, ..)| Some((*what, pod::annotation(subject, what)?)));
    annotated.into_iter().try_for_each(|(what, text)| check_text(what, text))
}

/// Checks the value of one of the annotations.
///
/// # Errors
/// The value is not a map or list in JSON, or the API server would refuse one of its items.
pub(super) fn check_text(what: &'static str, text: &str) -> Result<(), Invalid> {
    let value = serde_json::from_str(text).map_err(|error| Invalid::Json { what, error })?;
    let known = KNOWN.iter().find(|(name, ..)| *name == what);
    let Some((_, _, check, form)) = known else { return Ok(()) };
    let mut items = items(what, &value, form)?.into_iter();
    items.try_for_each(|(name, item)| check(&item).map_err(|error| Invalid::Item { what, name, error }))
}

/// Returns warnings about fields that the API does not have, and that the API server therefore drops, and about absolute paths of files.
pub(super) fn warnings(subject: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for (what, of, _, form) in KNOWN {
        let Some(value) = pod::annotation(subject, what).and_then(|text| serde_json::from_str(text).ok()) else {
            continue;
        };
        for (name, item) in items(what, &value, form).unwrap_or_default() {
            let is_unknown = |key: &&String| Struct::named(of).is_some_and(|of| !of.has(key));
            let unknown: Vec<&str> = item
                .as_object()
                .into_iter()
                .flat_map(|item| item.keys().filter(is_unknown))
                .map(String::as_str)
                .collect();
            // This is only a warning, because Istio's own expected outputs have such a path.
            warnings.extend(volume::absolute(&item).map(|path| {
                format!(
                    "a file of {name:?} in {what} has the absolute path {path:?}: the API server refuses the pod, unless the path is relative"
                )
            }));
            if !unknown.is_empty() {
                warnings.push(format!(
                    "unknown fields of {name:?} in {what} that the API server drops: {}",
                    unknown.join(", ")
                ));
            }
        }
    }
    warnings
}

/// Returns the items with their names. A name in an item takes precedence over its key.
fn items(what: &'static str, value: &Value, form: &'static str) -> Result<Vec<(String, Value)>, Invalid> {
    let named = |name: &str, item: &Value| {
        let mut item = item.clone();
        if let Some(fields) = item.as_object_mut() {
            fields.entry("name").or_insert_with(|| name.into());
        }
        (pod::text(&item, "name").to_owned(), item)
    };
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Object(members) => match members.iter().find(|(_, item)| !item.is_object()) {
            Some((name, _)) => Err(Invalid::NoMap { what, name: name.clone() }),
            None => Ok(members.iter().map(|(name, item)| named(name, item)).collect()),
        },
        Value::Array(list) => match list.iter().position(|item| pod::text(item, "name").is_empty()) {
            Some(at) => Err(Invalid::Unnamed { what, at }),
            None => Ok(list.iter().map(|item| named("", item)).collect()),
        },
        _ => Err(Invalid::Form { what, form }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn annotated(name: &str, value: &str) -> Value {
        json!({"metadata": {"annotations": {name: value}}})
    }

    #[test]
    fn a_wrong_form_is_refused_with_the_annotation_and_the_reason() {
        let (volume, mount) = (annotation::USER_VOLUME, annotation::USER_VOLUME_MOUNT);
        for (name, value, reason) in [
            (volume, "no JSON", "annotation \"sidecar.istio.io/userVolume\" is not JSON: expected"),
            (volume, "", "is not JSON: EOF"),
            (
                volume,
                "5",
                "annotation \"sidecar.istio.io/userVolume\" must be volumes of a pod in JSON, as a map by name or as a list",
            ),
            (volume, r#""{}""#, "must be volumes of a pod"),
            (volume, r#"{"a": 5}"#, "\"a\" in annotation \"sidecar.istio.io/userVolume\" must be a map of fields"),
            (volume, r#"{"a": null}"#, "\"a\" in annotation \"sidecar.istio.io/userVolume\" must be a map of fields"),
            (volume, r#"{"A": {}}"#, ": its name must be"),
            (volume, r#"[{"name": "a"}, {"emptyDir": {}}]"#, "item 1 of the list in annotation"),
            (
                volume,
                r#"{"a": {"hostPath": {}}}"#,
                "\"a\" in annotation \"sidecar.istio.io/userVolume\": hostPath.path is required",
            ),
            (
                volume,
                r#"{"a": {"name": "b", "emptyDir": 1}}"#,
                "\"b\" in annotation \"sidecar.istio.io/userVolume\": emptyDir: expected a map, got 1",
            ),
            (mount, r#"{"a": {}}"#, "\"a\" in annotation \"sidecar.istio.io/userVolumeMount\": mountPath is required"),
            (mount, r#"[{"name": "a", "mountPath": true}]"#, ": mountPath: expected a text, got true"),
            (volume, r#"{"a": {"hostPath": {"path": 5}}}"#, ": hostPath.path: expected a text, got 5"),
        ] {
            let error = check(&annotated(name, value)).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains(name), "{value}: {error}");
        }
        for (name, value) in [
            (volume, "{}"),
            (volume, "null"),
            (volume, r#"{"a": {}, "b": {"emptyDir": {"medium": "Memory"}}}"#),
            (mount, r#"[{"name": "a", "mountPath": "/a"}]"#),
        ] {
            check(&annotated(name, value)).unwrap();
        }
    }

    #[test]
    fn a_misspelt_field_is_named() {
        let pod =
            annotated(annotation::USER_VOLUME, r#"{"a": {"emptydir": {}, "hostpath": 1}, "b": {"emptyDir": {}}}"#);
        let expected =
            "unknown fields of \"a\" in sidecar.istio.io/userVolume that the API server drops: emptydir, hostpath";
        assert_eq!(warnings(&pod), [expected]);
        assert_eq!(warnings(&annotated(annotation::USER_VOLUME_MOUNT, r#"{"a": {"mountPath": "/"}}"#)), [""; 0]);
    }
}
