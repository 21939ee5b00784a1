//! The conditions of the API server on the environment of an injected container (`ValidateEnv`, `ValidateEnvFrom`).

use podfacts::name::{is_dns_label, is_subdomain};
use serde_json::Value;

use super::fields::{demand, require};
use super::names::{is_config_key, is_straight, is_variable, text};
use super::{SOURCE, Unstartable, alternatives};
use crate::{pod, volume};

/// The fields of a pod to which a variable may refer. `spec.host` is the former name of `spec.nodeName`.
const FIELDS: [&str; 10] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.host",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const NAME: &str = "the name of an object: a DNS subdomain";
const KEY: &str = "a key of letters, digits, \"-\", \"_\" and \".\"";

/// Checks the environment variables of a container and their sources.
pub(super) fn check(container: &Value) -> Result<(), Unstartable> {
    for variable in pod::list(container, "env") {
        let (container, name) = (pod::name(container).to_owned(), pod::name(variable).to_owned());
        if !is_variable(&name) {
            return Err(Unstartable::VariableName { container, name });
        }
        let Some(from) = variable.get("valueFrom").filter(|from| !from.is_null()) else { continue };
        if !pod::text(variable, "value").is_empty() {
            return Err(Unstartable::Variable { container, name });
        }
        let place = format!("variable {name:?} of container {container}");
        alternatives(format!("valueFrom of {place}"), Some(from), SOURCE)?;
        source(&place, from)?;
    }
    let place = format!("container {}", pod::name(container));
    pod::list(container, "envFrom").iter().try_for_each(|from| all_of(&place, from))
}

/// Checks the source of a variable.
fn source(place: &str, from: &Value) -> Result<(), Unstartable> {
    let Some(kind) = pod::set(from).find(|kind| SOURCE.contains(kind)) else { return Ok(()) };
    let source = &from[kind];
    let field = |key: &str| (format!("{kind}.{key}"), Value::from(pod::text(source, key)));
    let check = |key: &str, is_valid: fn(&str) -> bool, allowed| {
        let (path, value) = field(key);
        demand(place, &path, &value, text(is_valid), allowed)
    };
    match kind {
        "fieldRef" => {
            check("apiVersion", |version| matches!(version, "" | "v1"), "v1")?;
            check("fieldPath", is_field, "a field of the pod such as metadata.name or metadata.labels['app']")
        }
        "resourceFieldRef" => {
            check(
                "resource",
                volume::is_resource,
                "limits or requests of cpu, memory, ephemeral-storage or hugepages-SIZE",
            )?;
            let is_unit = |divisor: &Value| volume::is_divisor(pod::text(source, "resource"), divisor);
            require(place, "resourceFieldRef.divisor", source.get("divisor"), is_unit, volume::DIVISORS)
        }
        "fileKeyRef" => {
            check("key", is_variable, "the name of a variable")?;
            check("volumeName", is_dns_label, "the name of a volume")?;
            check("path", |path| !path.is_empty() && is_straight(path), "a path without \"..\"")
        }
        _ => {
            check("name", is_subdomain, NAME)?;
            check("key", is_config_key, KEY)
        }
    }
}

/// Whether a variable may refer to this field of the pod.
fn is_field(path: &str) -> bool {
    FIELDS.contains(&path) || volume::is_member(path)
}

/// Checks an element of `envFrom`: a ConfigMap or a Secret whose keys become variables.
fn all_of(place: &str, from: &Value) -> Result<(), Unstartable> {
    const KINDS: &[&str] = &["configMapRef", "secretRef"];
    alternatives(format!("envFrom of {place}"), Some(from), KINDS)?;
    let is_prefix = |prefix: &str| prefix.is_empty() || is_variable(prefix);
    require(place, "envFrom.prefix", from.get("prefix"), text(is_prefix), "the beginning of a variable's name")?;
    let mut kinds = KINDS.iter().filter_map(|kind| Some((kind, from.get(*kind).filter(|of| !of.is_null())?)));
    kinds.try_for_each(|(kind, of)| {
        demand(place, &format!("envFrom.{kind}.name"), &pod::name(of).into(), text(is_subdomain), NAME)
    })
}
