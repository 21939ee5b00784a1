//! The values that the API server allows for the fields of an injected container, and the containers of the pod that must
//! remain.

use std::collections::HashSet;

use serde_json::Value;

use super::{HANDLERS, PROBES, Unstartable};
use crate::inject::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// The maximum length of a DNS label, in bytes.
const LABEL: usize = 63;
/// The maximum length of a port's name, in bytes.
const PORT_NAME: usize = 15;
const POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
/// The numbers of a probe.
const NUMBERS: [&str; 5] =
    ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"];
/// The probes for which `successThreshold` must be 1.
const ONCE: [&str; 2] = ["startupProbe", "livenessProbe"];
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
const SCHEMES: [&str; 2] = ["HTTP", "HTTPS"];
const MESSAGES: [&str; 2] = ["File", "FallbackToLogsOnError"];
const RESTARTS: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS_POLICIES: [&str; 4] = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
/// The profiles of a security context, and their types.
pub(in crate::inject::istio) const PROFILES: [&str; 2] = ["seccompProfile", "appArmorProfile"];
const PROFILE_TYPES: [&str; 3] = ["RuntimeDefault", "Localhost", "Unconfined"];
const PORT: &str = "a port from 1 to 65535";
const ID: &str = "from 0 to 2147483647";

/// Checks that all containers of the pod remain which no template deletes by its name. `author`: the pod before the
/// injection, `deleted`: the names of the deleted containers.
///
/// # Errors
/// The pod has no container left, or lacks one.
pub(in crate::inject::istio) fn remain(
    author: &Value,
    merged: &Value,
    deleted: &HashSet<String>,
) -> Result<(), Unstartable> {
    let own = pod::containers(author, CONTAINERS);
    if !own.is_empty() && pod::containers(merged, CONTAINERS).is_empty() {
        return Err(Unstartable::NoContainers);
    }
    let lists = [CONTAINERS, INIT_CONTAINERS].into_iter();
    let left: HashSet<&str> = lists.flat_map(|which| pod::containers(merged, which)).map(pod::name).collect();
    match own.iter().map(pod::name).find(|name| !left.contains(name) && !deleted.contains(*name)) {
        Some(name) => Err(Unstartable::Lost(name.to_owned())),
        None => Ok(()),
    }
}

/// Checks the users and groups of the pod that the injection changes.
pub(super) fn ids_of_pod(author: &Value, merged: &Value) -> Result<(), Unstartable> {
    let context = |pod| pod::spec(pod).get("securityContext").unwrap_or(&Value::Null);
    let changed = ["runAsUser", "runAsGroup", "fsGroup"].into_iter();
    let mut changed = changed.filter(|field| context(author).get(field) != context(merged).get(field));
    changed.try_for_each(|field| require("the pod", field, context(merged).get(field), is_id, ID))?;
    let changed = PROFILES.into_iter().filter(|field| context(author).get(field) != context(merged).get(field));
    changed.into_iter().try_for_each(|field| profile("the pod", field, context(merged).get(field)))
}

/// Checks a profile of a security context: its type, and that a path of the node is named for one of the node only.
fn profile(place: &str, field: &str, profile: Option<&Value>) -> Result<(), Unstartable> {
    let Some(profile) = profile.filter(|profile| !profile.is_null()) else { return Ok(()) };
    let of_type = pod::text(profile, "type");
    let is_type = |_: &Value| PROFILE_TYPES.contains(&of_type);
    require(
        place,
        &format!("{field}.type"),
        Some(&of_type.into()),
        is_type,
        "RuntimeDefault, Localhost or Unconfined",
    )?;
    let path = profile.get("localhostProfile").unwrap_or(&Value::Null);
    let is_path =
        |_: &Value| if of_type == "Localhost" { path.as_str() != Some("") && !path.is_null() } else { path.is_null() };
    demand(place, &format!("{field}.localhostProfile"), path, is_path, "set for the type Localhost, and for no other")
}

/// Checks the policies of the pod that the injection changes.
pub(super) fn policies(author: &Value, merged: &Value) -> Result<(), Unstartable> {
    let is_changed = |field: &str| pod::spec(author).get(field) != pod::spec(merged).get(field);
    let changed = |field: &str| pod::spec(merged).get(field).filter(|_| is_changed(field));
    require("the pod", "restartPolicy", changed("restartPolicy"), one_of(&RESTARTS), "Always, OnFailure or Never")?;
    let allowed = "ClusterFirst, ClusterFirstWithHostNet, Default or None";
    require("the pod", "dnsPolicy", changed("dnsPolicy"), one_of(&DNS_POLICIES), allowed)?;
    let config = pod::spec(merged).get("dnsConfig").unwrap_or(&Value::Null);
    let has_servers = |policy: &Value| policy != "None" || !pod::list(config, "nameservers").is_empty();
    require("the pod", "dnsPolicy", changed("dnsPolicy"), has_servers, "another one, or have dnsConfig.nameservers")
}

/// Checks the names of the pull secrets that the injection adds: the kubelet finds no Secret of another name.
pub(super) fn pull_secrets(author: &Value, merged: &Value) -> Result<(), Unstartable> {
    const SECRETS: &str = "imagePullSecrets";
    let own = pod::list(pod::spec(author), SECRETS);
    let added = pod::list(pod::spec(merged), SECRETS).iter().filter(|secret| !own.contains(secret));
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_name = |name: &Value| name.as_str().is_none_or(|name| name.chars().all(is_part));
    added
        .map(|secret| secret.get("name"))
        .try_for_each(|name| require("the pod", SECRETS, name, is_name, "the name of a Secret"))
}

/// Checks the fields of one container.
pub(super) fn check(container: &Value) -> Result<(), Unstartable> {
    let place = &format!("container {}", pod::name(container));
    let is_label = |name: &Value| name.as_str().is_none_or(|name| name.len() <= LABEL && is_dns(name));
    require(place, "name", container.get("name"), is_label, "a DNS label of at most 63 bytes")?;
    let policy = container.get("imagePullPolicy");
    require(place, "imagePullPolicy", policy, one_of(&POLICIES), "Always, IfNotPresent or Never")?;
    let policy = container.get("terminationMessagePolicy");
    require(place, "terminationMessagePolicy", policy, one_of(&MESSAGES), "File or FallbackToLogsOnError")?;
    let context = container.get("securityContext").unwrap_or(&Value::Null);
    PROFILES.into_iter().try_for_each(|field| profile(place, field, context.get(field)))?;
    for field in ["runAsUser", "runAsGroup"] {
        require(place, field, context.get(field), is_id, ID)?;
    }
    PROBES.into_iter().try_for_each(|name| probe(place, name, container.get(name).unwrap_or(&Value::Null)))?;
    let lifecycle = container.get("lifecycle").unwrap_or(&Value::Null);
    HANDLERS.into_iter().try_for_each(|name| handler(place, name, lifecycle.get(name).unwrap_or(&Value::Null)))?;
    ports(place, container)
}

fn probe(place: &str, name: &str, probe: &Value) -> Result<(), Unstartable> {
    let is_natural = |number: &Value| number.as_i64().is_none_or(|number| number >= 0);
    for field in NUMBERS {
        require(place, &format!("{name}.{field}"), probe.get(field), is_natural, "0 or more")?;
    }
    // The API server sets 1 for 0.
    let is_once = |number: &Value| number.as_i64().is_none_or(|number| number <= 1);
    if ONCE.contains(&name) {
        require(place, &format!("{name}.successThreshold"), probe.get("successThreshold"), is_once, "1")?;
    }
    handler(place, name, probe)
}

/// Checks a probe or a handler of `lifecycle`.
fn handler(place: &str, name: &str, handler: &Value) -> Result<(), Unstartable> {
    let set = |kind: &str| handler.get(kind).filter(|kind| !kind.is_null());
    for kind in ["httpGet", "tcpSocket", "grpc"] {
        let Some(port) = set(kind).map(|kind| kind.get("port").unwrap_or(&Value::Null)) else { continue };
        let is_valid = |port: &Value| port.as_str().map_or_else(|| is_port(port) && !port.is_null(), is_port_name);
        demand(place, &format!("{name}.{kind}.port"), port, is_valid, "a port from 1 to 65535, or a port's name")?;
    }
    let scheme = set("httpGet").and_then(|http| http.get("scheme"));
    require(place, &format!("{name}.httpGet.scheme"), scheme, one_of(&SCHEMES), "HTTP or HTTPS")?;
    let Some(exec) = set("exec") else { return Ok(()) };
    let command = exec.get("command").unwrap_or(&Value::Null);
    let has_command = |_: &Value| !pod::list(exec, "command").is_empty();
    demand(place, &format!("{name}.exec.command"), command, has_command, "a program and its arguments")
}

fn ports(place: &str, container: &Value) -> Result<(), Unstartable> {
    let is_name = |name: &Value| name.as_str().is_none_or(|name| name.is_empty() || is_port_name(name));
    let is_host_port = |port: &Value| port.as_i64() == Some(0) || is_port(port);
    for port in pod::list(container, "ports") {
        let allowed = "1 to 15 lower-case letters, digits and single dashes between them, with a letter";
        require(place, "ports.name", port.get("name"), is_name, allowed)?;
        require(place, "ports.hostPort", port.get("hostPort"), is_host_port, PORT)?;
        require(place, "ports.protocol", port.get("protocol"), one_of(&PROTOCOLS), "TCP, UDP or SCTP")?;
        let number = port.get("containerPort").unwrap_or(&Value::Null);
        demand(place, "ports.containerPort", number, |number| is_port(number) && !number.is_null(), PORT)?;
    }
    Ok(())
}

/// Returns a condition on a text: an empty one is that which is not set.
fn one_of<'a>(allowed: &'a [&str]) -> impl Fn(&Value) -> bool + 'a {
    |value| value.as_str().is_none_or(|text| text.is_empty() || allowed.contains(&text))
}

/// Checks a field that has a value other than null.
pub(super) fn require(
    place: &str,
    field: &str,
    value: Option<&Value>,
    is_valid: impl Fn(&Value) -> bool,
    allowed: &'static str,
) -> Result<(), Unstartable> {
    value.filter(|value| !value.is_null()).map_or(Ok(()), |value| demand(place, field, value, is_valid, allowed))
}

/// Checks a field, for which null is a value.
fn demand(
    place: &str,
    field: &str,
    value: &Value,
    is_valid: impl Fn(&Value) -> bool,
    allowed: &'static str,
) -> Result<(), Unstartable> {
    if is_valid(value) {
        return Ok(());
    }
    let (place, field) = (place.to_owned(), field.to_owned());
    Err(Unstartable::Field { place, field, value: value.to_string(), allowed })
}

fn is_id(id: &Value) -> bool {
    id.as_i64().is_none_or(|id| i32::try_from(id).is_ok_and(|id| id >= 0))
}

fn is_port(port: &Value) -> bool {
    port.as_i64().is_none_or(|port| (1..=65535).contains(&port))
}

/// Whether a text is a DNS label, apart from its length.
fn is_dns(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(is_end) && text.ends_with(is_end) && text.chars().all(|c| is_end(c) || c == '-')
}

/// Whether a text is the name of a port (`IANA_SVC_NAME`).
fn is_port_name(name: &str) -> bool {
    let has_letter = name.contains(|c: char| c.is_ascii_lowercase());
    name.len() <= PORT_NAME && is_dns(name) && has_letter && !name.contains("--")
}
