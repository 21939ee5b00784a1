//! Validates the claim template of an ephemeral volume (`ValidatePersistentVolumeClaimTemplate`).

use gocompat::quantity;
use podfacts::name::{is_key, is_label_value, is_subdomain};
use serde_json::Value;

use super::{Invalid, demand, is_empty, pod, require};

/// The access modes of a claim. The first one excludes the others.
const ACCESS: [&str; 4] = ["ReadWriteOncePod", "ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"];
const SPEC: &str = "ephemeral.volumeClaimTemplate.spec";
const METADATA: &str = "ephemeral.volumeClaimTemplate.metadata";
/// The fields of an object's metadata that a claim template cannot set.
const OF_OBJECTS: [&str; 13] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "finalizers",
    "managedFields",
];
const CLASS: &str = "the name of an object: a DNS subdomain";
const KEY: &str = "the name of a label: letters, digits, \"-\", \"_\" and \".\", perhaps after a domain and a slash";
const VALUE: &str = "the value of a label";

/// Checks the claim template, if there is one.
pub(super) fn check(template: &Value) -> Result<(), Invalid> {
    if template.is_null() {
        return Ok(());
    }
    require("ephemeral.volumeClaimTemplate", Some(template), &["spec"])?;
    metadata(template.get("metadata").unwrap_or(&Value::Null))?;
    let spec = template.get("spec").filter(|spec| !spec.is_null());
    require(SPEC, spec, &["accessModes"])?;
    let spec = spec.unwrap_or(&Value::Null);
    access_modes(pod::list(spec, "accessModes"))?;
    selector(spec.get("selector").unwrap_or(&Value::Null))?;
    storage(spec)?;
    for class in ["storageClassName", "volumeAttributesClassName"] {
        let name = pod::text(spec, class);
        demand(&format!("{SPEC}.{class}"), name, name.is_empty() || is_subdomain(name), CLASS)?;
    }
    let mode = spec.get("volumeMode").and_then(Value::as_str);
    let is_mode = mode.is_none_or(|mode| ["Block", "Filesystem"].contains(&mode));
    demand(&format!("{SPEC}.volumeMode"), mode.unwrap_or_default(), is_mode, "Block or Filesystem")?;
    ["dataSource", "dataSourceRef"].into_iter().try_for_each(|name| data_source(name, &spec[name]))?;
    same_source(spec)
}

/// Checks the metadata, which may have labels and annotations only.
fn metadata(metadata: &Value) -> Result<(), Invalid> {
    let is_zero = |field: &Value| is_empty(Some(field)) || field.as_i64() == Some(0);
    let set = OF_OBJECTS.into_iter().find(|name| metadata.get(*name).is_some_and(|field| !is_zero(field)));
    if let Some(name) = set {
        let value = metadata[name].to_string();
        return demand(&format!("{METADATA}.{name}"), &value, false, "absent: labels and annotations are allowed");
    }
    labels(&format!("{METADATA}.labels"), metadata, "labels")?;
    let annotations = pod::map(metadata, "annotations").keys();
    let field = format!("{METADATA}.annotations");
    annotations.map(String::as_str).try_for_each(|name| demand(&field, name, is_key(&name.to_lowercase()), KEY))
}

fn labels(field: &str, parent: &Value, name: &str) -> Result<(), Invalid> {
    pod::map(parent, name).iter().try_for_each(|(key, value)| {
        demand(field, key, is_key(key), KEY)?;
        let value = value.as_str().unwrap_or_default();
        demand(field, value, is_label_value(value), VALUE)
    })
}

fn selector(selector: &Value) -> Result<(), Invalid> {
    labels(&format!("{SPEC}.selector.matchLabels"), selector, "matchLabels")?;
    let field = |name: &str| format!("{SPEC}.selector.matchExpressions.{name}");
    for condition in pod::list(selector, "matchExpressions") {
        let (key, operator) = (pod::text(condition, "key"), pod::text(condition, "operator"));
        demand(&field("key"), key, is_key(key), KEY)?;
        let values = pod::list(condition, "values");
        let (is_operator, has_values) = match operator {
            "In" | "NotIn" => (true, !values.is_empty()),
            "Exists" | "DoesNotExist" => (true, values.is_empty()),
            _ => (false, true),
        };
        demand(&field("operator"), operator, is_operator, "In, NotIn, Exists or DoesNotExist")?;
        let count = values.len().to_string();
        demand(&field("values"), &count, has_values, "values with In and NotIn, and none otherwise")?;
        let mut texts = values.iter().map(|value| value.as_str().unwrap_or_default());
        texts.try_for_each(|value| demand(&field("values"), value, is_label_value(value), VALUE))?;
    }
    Ok(())
}

fn storage(spec: &Value) -> Result<(), Invalid> {
    let field = format!("{SPEC}.resources.requests.storage");
    let requested = spec.pointer("/resources/requests/storage").filter(|storage| !storage.is_null());
    let Some(requested) = requested.map(quantity::text) else { return Err(Invalid::Required(field)) };
    let is_positive = !quantity::is_negative(&requested) && quantity::nanos(&requested) != Some(0);
    demand(&field, &requested, is_positive, "more than 0")
}

/// Checks the access modes of a claim.
fn access_modes(modes: &[Value]) -> Result<(), Invalid> {
    let field = "ephemeral.volumeClaimTemplate.spec.accessModes";
    let is_known = |mode: &&Value| mode.as_str().is_some_and(|mode| ACCESS.contains(&mode));
    let is_alone = |mode: &&Value| *mode != ACCESS[0] || modes.iter().all(|other| other == ACCESS[0]);
    match modes.iter().find(|mode| !is_known(mode) || !is_alone(mode)) {
        Some(mode) => Err(Invalid::Access { field, value: mode.to_string() }),
        None => Ok(()),
    }
}

/// Checks the object from which the volume is populated, if there is one.
fn data_source(name: &str, source: &Value) -> Result<(), Invalid> {
    let field = format!("{SPEC}.{name}");
    require(&field, Some(source), &["name", "kind"])?;
    let (group, kind) = (pod::text(source, "apiGroup"), pod::text(source, "kind"));
    let is_claim = source.is_null() || !group.is_empty() || kind == "PersistentVolumeClaim";
    demand(&field, kind, is_claim, "a PersistentVolumeClaim, or have an apiGroup")?;
    demand(&format!("{field}.apiGroup"), group, group.is_empty() || is_subdomain(group), "a DNS subdomain")
}

/// Checks that `dataSource` and `dataSourceRef`, if both are set, name the same object, and that the latter has no namespace.
fn same_source(spec: &Value) -> Result<(), Invalid> {
    let (one, other) = (&spec["dataSource"], &spec["dataSourceRef"]);
    let has_namespace = !pod::text(other, "namespace").is_empty();
    let group = |source: &Value| source.get("apiGroup").filter(|group| !group.is_null()).cloned();
    let is_same = group(one) == group(other) && one["kind"] == other["kind"] && one["name"] == other["name"];
    let is_valid = one.is_null() || other.is_null() || (is_same && !has_namespace);
    let allowed = "equal to dataSourceRef, and absent if that has a namespace";
    demand(&format!("{SPEC}.dataSource"), pod::name(one), is_valid, allowed)
}
