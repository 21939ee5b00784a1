//! The values that the API server allows for the fields of an injected container, and the containers of the pod that must
//! remain.

use std::collections::HashSet;

use podfacts::name::is_dns_label;
use serde_json::Value;

use super::names::{is_header, is_port_name, is_straight, one_of, text};
use super::{HANDLERS, PROBES, Unstartable};
use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};

const POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
/// The numbers of a probe.
const NUMBERS: [&str; 5] =
    ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"];
/// The probes for which `successThreshold` must be 1.
const ONCE: [&str; 2] = ["startupProbe", "livenessProbe"];
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
const SCHEMES: [&str; 2] = ["HTTP", "HTTPS"];
const MESSAGES: [&str; 2] = ["File", "FallbackToLogsOnError"];
/// The restart policies of a container. Before Kubernetes 1.35, only init containers have one, which is `Always`.
const RESTARTS: [&str; 3] = ["Always", "OnFailure", "Never"];
const RESIZED: [&str; 2] = ["cpu", "memory"];
const RESIZES: [&str; 2] = ["NotRequired", "RestartContainer"];
const PROC_MOUNTS: [&str; 2] = ["Default", "Unmasked"];
/// The signals of Linux other than real-time signals, without the prefix `SIG`.
const SIGNALS: &str = "ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR \
    QUIT SEGV STKFLT STOP SYS TERM TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ";
/// The grace period of a pod without one, in seconds.
const GRACE: i64 = 30;
/// The maximum length of the name of an AppArmor profile, in bytes.
const PROFILE: usize = 4095;
/// The profiles of a security context.
pub(in crate::istio) const PROFILES: [&str; 2] = ["seccompProfile", "appArmorProfile"];
const PROFILE_TYPES: [&str; 3] = ["RuntimeDefault", "Localhost", "Unconfined"];
const PORT: &str = "a port from 1 to 65535";
pub(super) const ID: &str = "from 0 to 2147483647";

/// Checks that the pod keeps each of its containers that no template deletes by name. `author`: the pod before the
/// injection, `deleted`: the names of the deleted containers.
///
/// # Errors
/// The pod has no container left, or lacks one.
pub(in crate::istio) fn remain(author: &Value, merged: &Value, deleted: &HashSet<String>) -> Result<(), Unstartable> {
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

/// Checks a profile of a security context: its type, and that `localhostProfile` is set for the type `Localhost` only.
pub(super) fn profile(place: &str, field: &str, profile: Option<&Value>) -> Result<(), Unstartable> {
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
    let key = format!("{field}.localhostProfile");
    demand(place, &key, path, is_path, "set for the type Localhost, and for no other")?;
    let is_of_seccomp = field == PROFILES[0];
    let is_valid = |path: &str| match is_of_seccomp {
        true => !path.starts_with('/') && is_straight(path),
        false => path.trim() == path && path.len() <= PROFILE,
    };
    let allowed = match is_of_seccomp {
        true => "a path within the kubelet's directory of profiles: relative, and without \"..\"",
        false => "a name of at most 4095 bytes without spaces at its ends",
    };
    require(place, &key, Some(path), text(is_valid), allowed)
}

/// Checks the fields of one container of a pod with this spec.
pub(super) fn check(spec: &Value, container: &Value) -> Result<(), Unstartable> {
    let place = &format!("container {}", pod::name(container));
    require(place, "name", container.get("name"), text(is_dns_label), "a DNS label of at most 63 bytes")?;
    let policy = container.get("imagePullPolicy");
    require(place, "imagePullPolicy", policy, one_of(&POLICIES), "Always, IfNotPresent or Never")?;
    let policy = container.get("terminationMessagePolicy");
    require(place, "terminationMessagePolicy", policy, one_of(&MESSAGES), "File or FallbackToLogsOnError")?;
    let context = container.get("securityContext").unwrap_or(&Value::Null);
    PROFILES.into_iter().try_for_each(|field| profile(place, field, context.get(field)))?;
    for field in ["runAsUser", "runAsGroup"] {
        require(place, field, context.get(field), is_id, ID)?;
    }
    let masks = context.get("procMount");
    require(place, "procMount", masks, text(|mount| PROC_MOUNTS.contains(&mount)), "Default or Unmasked")?;
    let own_users = spec.get("hostUsers") == Some(&Value::Bool(false));
    require(
        place,
        "procMount",
        masks,
        |mount| own_users || mount != "Unmasked",
        "Default in a pod with the host's users",
    )?;
    PROBES.into_iter().try_for_each(|name| probe(place, name, container.get(name).unwrap_or(&Value::Null)))?;
    lifecycle(place, spec, container.get("lifecycle").unwrap_or(&Value::Null))?;
    restarts(place, spec, container)?;
    ports(place, container)
}

fn lifecycle(place: &str, spec: &Value, lifecycle: &Value) -> Result<(), Unstartable> {
    let grace = spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(GRACE);
    for name in HANDLERS {
        let handler_of = lifecycle.get(name).unwrap_or(&Value::Null);
        handler(place, name, handler_of)?;
        let seconds = handler_of.get("sleep").and_then(|sleep| sleep.get("seconds"));
        let is_within = |seconds: &Value| seconds.as_i64().is_none_or(|seconds| (0..=grace).contains(&seconds));
        let allowed = "from 0 to the pod's terminationGracePeriodSeconds, which is 30 by default";
        require(place, &format!("{name}.sleep.seconds"), seconds, is_within, allowed)?;
    }
    require(place, "lifecycle.stopSignal", lifecycle.get("stopSignal"), text(is_signal), "a signal such as SIGTERM")
}

/// Whether a string is the name of a signal.
fn is_signal(text: &str) -> bool {
    let number = |start| text.strip_prefix(start).and_then(|number| number.parse::<u8>().ok());
    text.strip_prefix("SIG").is_some_and(|name| SIGNALS.split(' ').any(|signal| signal == name))
        || matches!(text, "SIGRTMIN" | "SIGRTMAX")
        || number("SIGRTMIN+").is_some_and(|number| (1..=15).contains(&number))
        || number("SIGRTMAX-").is_some_and(|number| (1..=14).contains(&number))
}

/// Checks the policies for restarts of a container when it ends and when its resources change.
fn restarts(place: &str, spec: &Value, container: &Value) -> Result<(), Unstartable> {
    let policy = container.get("restartPolicy");
    require(place, "restartPolicy", policy, text(|policy| RESTARTS.contains(&policy)), "Always, OnFailure or Never")?;
    let has_policy = |rules: &Value| policy.is_some_and(Value::is_string) || rules.as_array().is_none_or(Vec::is_empty);
    require(
        place,
        "restartPolicyRules",
        container.get("restartPolicyRules"),
        has_policy,
        "absent without restartPolicy",
    )?;
    let mut seen = HashSet::new();
    for resize in pod::list(container, "resizePolicy") {
        let name = pod::text(resize, "resourceName");
        let is_valid = RESIZED.contains(&name) && seen.insert(name);
        demand(place, "resizePolicy.resourceName", &name.into(), |_| is_valid, "cpu or memory, and each only once")?;
        let policy = pod::text(resize, "restartPolicy");
        let is_valid = RESIZES.contains(&policy);
        demand(place, "resizePolicy.restartPolicy", &policy.into(), |_| is_valid, "NotRequired or RestartContainer")?;
        let is_valid = pod::text(spec, "restartPolicy") != "Never" || policy == RESIZES[0];
        demand(
            place,
            "resizePolicy.restartPolicy",
            &policy.into(),
            |_| is_valid,
            "NotRequired in a pod that never restarts",
        )?;
    }
    Ok(())
}

fn probe(place: &str, name: &str, probe: &Value) -> Result<(), Unstartable> {
    let is_natural = |number: &Value| number.as_i64().is_none_or(|number| number >= 0);
    for field in NUMBERS {
        require(place, &format!("{name}.{field}"), probe.get(field), is_natural, "0 or more")?;
    }
    // The API server replaces 0 with the default, 1.
    let is_once = |number: &Value| number.as_i64().is_none_or(|number| number <= 1);
    if ONCE.contains(&name) {
        require(place, &format!("{name}.successThreshold"), probe.get("successThreshold"), is_once, "1")?;
    }
    let (key, grace) = (format!("{name}.terminationGracePeriodSeconds"), probe.get("terminationGracePeriodSeconds"));
    require(place, &key, grace, |_| name != "readinessProbe", "absent")?;
    require(place, &key, grace, |grace| grace.as_i64().is_none_or(|grace| grace > 0), "1 or more")?;
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
    for header in set("httpGet").map_or(&[][..], |http| pod::list(http, "httpHeaders")) {
        let allowed = "letters, digits and dashes";
        let name_of = Value::from(pod::name(header));
        demand(place, &format!("{name}.httpGet.httpHeaders.name"), &name_of, text(is_header), allowed)?;
    }
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

/// Checks a field unless it is absent or null.
pub(super) fn require(
    place: &str,
    field: &str,
    value: Option<&Value>,
    is_valid: impl Fn(&Value) -> bool,
    allowed: &'static str,
) -> Result<(), Unstartable> {
    value.filter(|value| !value.is_null()).map_or(Ok(()), |value| demand(place, field, value, is_valid, allowed))
}

/// Checks a field, even if it is null.
pub(super) fn demand(
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

pub(super) fn is_id(id: &Value) -> bool {
    id.as_i64().is_none_or(|id| i32::try_from(id).is_ok_and(|id| id >= 0))
}

fn is_port(port: &Value) -> bool {
    port.as_i64().is_none_or(|port| (1..=65535).contains(&port))
}
