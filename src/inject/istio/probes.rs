//! Rewriting of probes and lifecycle hooks to the proxy's agent, because the kubelet has no certificate for mTLS.
//!
//! A rewritten probe is an HTTP request to the agent's status port. The originals are recorded in a variable of the sidecar.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::contract::{annotation, container};
use crate::inject::gojson;
use crate::inject::pod::{self, CONTAINERS, INIT_CONTAINERS};
use crate::inject::typed::Struct;
use crate::redirect::annotations::parse_bool;

pub(super) const PROBERS: &str = "ISTIO_KUBE_APP_PROBERS";

/// The handlers: JSON pointer in a container, path on the agent's port, and whether it is a probe. Probes precede hooks.
const HANDLERS: [Handler; 5] = [
    Handler { pointer: "/readinessProbe", path: ("app-health", "readyz"), probe: true },
    Handler { pointer: "/livenessProbe", path: ("app-health", "livez"), probe: true },
    Handler { pointer: "/startupProbe", path: ("app-health", "startupz"), probe: true },
    Handler { pointer: "/lifecycle/preStop", path: ("app-lifecycle", "prestopz"), probe: false },
    Handler { pointer: "/lifecycle/postStart", path: ("app-lifecycle", "poststartz"), probe: false },
];

struct Handler {
    pointer: &'static str,
    path: (&'static str, &'static str),
    probe: bool,
}

impl Handler {
    fn path(&self, container: &str) -> String {
        format!("/{}/{container}/{}", self.path.0, self.path.1)
    }

    /// The actions that the agent supports.
    fn actions(&self) -> &'static [&'static str] {
        if self.probe { &["httpGet", "tcpSocket", "grpc"] } else { &["httpGet", "tcpSocket"] }
    }
}

/// Whether a pod's probes are rewritten: a valid annotation takes precedence over the configuration.
pub(super) fn are_rewritten(pod: &Value, configured: bool) -> bool {
    pod::annotation(pod, annotation::REWRITE_PROBES).and_then(parse_bool).unwrap_or(configured)
}

/// Rewrites the probes of all containers except the sidecar. `status_port` is the mesh's; the pod may have its own. `injected`: the
/// pod was injected before, so that the recorded originals stay.
///
/// A probe stays unchanged if the container has no port with the name in the probe.
pub(super) fn rewrite(pod: &mut Value, status_port: u16, injected: bool) {
    if pod::sidecar(pod).is_none() {
        return;
    }
    let target = target(pod, status_port);
    let mut originals = BTreeMap::new();
    for which in [INIT_CONTAINERS, CONTAINERS] {
        for container in pod::containers_mut(pod, which).iter_mut().filter(|c| pod::name(c) != container::PROXY) {
            for handler in &HANDLERS {
                if let Some(original) = original(container, handler, status_port) {
                    originals.insert(handler.path(pod::name(container)), original);
                    redirect(container, handler, target);
                }
            }
        }
    }
    if let (false, Some(sidecar)) = (originals.is_empty(), pod::sidecar_mut(pod)) {
        record(sidecar, originals.into_iter().collect(), injected);
    }
}

/// Returns the rewritten HTTP probes of applications for the patch of a legacy template, by JSON pointer, and the record of the
/// originals for the sidecar.
pub(super) fn http_probes(pod: &Value, status_port: u16) -> (Vec<(String, Value)>, Option<String>) {
    let target = target(pod, status_port);
    let (mut found, mut known) = (Vec::new(), BTreeMap::new());
    let applications = pod::containers(pod, CONTAINERS).iter().enumerate();
    for (at, container) in applications.filter(|(_, c)| pod::name(c) != container::PROXY) {
        for handler in &HANDLERS[..3] {
            if container.pointer(handler.pointer).is_none_or(|probe| !probe["httpGet"].is_object()) {
                continue;
            }
            if let Some(original) = original(container, handler, status_port) {
                known.insert(handler.path(pod::name(container)), original);
            }
            let mut rewritten = container.clone();
            redirect(&mut rewritten, handler, target);
            let probe = rewritten.pointer(handler.pointer).cloned().unwrap_or_default();
            found.push((format!("/spec/containers/{at}{}", handler.pointer), probe));
        }
    }
    for (path, original) in recorded(pod) {
        known.entry(path).or_insert(original);
    }
    let known: Map<String, Value> = known.into_iter().collect();
    let text = (!known.is_empty()).then(|| gojson::encode(&Value::Object(known)));
    (found, text)
}

/// Returns the originals that an earlier injection recorded in the pod's sidecar, which is going to be replaced.
fn recorded(pod: &Value) -> Map<String, Value> {
    let sidecar = pod::sidecar(pod).filter(|_| pod::annotation(pod, annotation::STATUS).is_some());
    let variables = sidecar.map(|sidecar| pod::list(sidecar, "env")).unwrap_or_default();
    let variable = variables.iter().find(|variable| pod::name(variable) == PROBERS);
    variable.and_then(|variable| serde_json::from_str(pod::text(variable, "value")).ok()).unwrap_or_default()
}

/// Returns the agent's port: the pod's own, else the mesh's.
fn target(pod: &Value, status_port: u16) -> u16 {
    pod::annotation(pod, annotation::STATUS_PORT).and_then(|port| port.parse().ok()).unwrap_or(status_port)
}

/// Returns a probe in the agent's format; `None` if it is absent, already rewritten, or its port has no number.
fn original(container: &Value, handler: &Handler, status_port: u16) -> Option<Value> {
    let probe = container.pointer(handler.pointer)?;
    let kind = *handler.actions().iter().find(|kind| probe.get(**kind).is_some_and(Value::is_object))?;
    let action = &probe[kind];
    let mut known = Struct::named(type_of(kind))?.canonical(action.clone()).ok()?;
    if kind != "grpc" {
        let port = numeric_port(container, action.get("port")?)?;
        if port == u64::from(status_port) {
            return None;
        }
        known["port"] = port.into();
    }
    let mut original = Map::new();
    original.insert(kind.to_owned(), known);
    let timeout = probe.get("timeoutSeconds").filter(|seconds| handler.probe && seconds.as_u64() != Some(0));
    if let Some(seconds) = timeout {
        original.insert("timeoutSeconds".to_owned(), seconds.clone());
    }
    Some(Value::Object(original))
}

/// Returns the API's type of an action.
fn type_of(action: &str) -> &'static str {
    match action {
        "httpGet" => "core.HTTPGetAction",
        "tcpSocket" => "core.TCPSocketAction",
        _ => "core.GRPCAction",
    }
}

fn numeric_port(container: &Value, port: &Value) -> Option<u64> {
    let Some(name) = port.as_str() else { return port.as_u64() };
    pod::list(container, "ports").iter().find(|p| pod::name(p) == name)?.get("containerPort")?.as_u64()
}

/// Records the originals in the sidecar. Originals of an earlier injection stay, since their probes are already rewritten.
fn record(sidecar: &mut Value, mut originals: Map<String, Value>, injected: bool) {
    let env = pod::list_mut(sidecar, "env");
    let known = env.iter_mut().find(|variable| injected && pod::name(variable) == PROBERS);
    let Some(variable) = known else {
        let text = gojson::encode(&Value::Object(originals));
        pod::push_env(sidecar, PROBERS, &text);
        return;
    };
    if let Ok(Value::Object(old)) = serde_json::from_str(pod::text(variable, "value")) {
        originals.extend(old);
    }
    originals.sort_keys();
    variable["value"] = gojson::encode(&Value::Object(originals)).into();
}

/// Rewrites a handler to the agent's port.
fn redirect(container: &mut Value, handler: &Handler, port: u16) {
    let path = handler.path(pod::name(container));
    let Some(Value::Object(probe)) = container.pointer_mut(handler.pointer) else { return };
    match handler.actions().iter().find(|kind| probe.get(**kind).is_some_and(Value::is_object)) {
        Some(&"httpGet") => {
            let action = &mut probe["httpGet"];
            action["path"] = path.into();
            action["port"] = port.into();
            if pod::text(action, "scheme") == "HTTPS" {
                action["scheme"] = "HTTP".into();
            }
        }
        Some(kind) => {
            probe.shift_remove(*kind);
            probe.insert("httpGet".to_owned(), json!({"path": path, "port": port}));
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(container: &Value) -> Value {
        json!({"spec": {"containers": [container, {"name": "istio-proxy"}]}})
    }

    fn probers(pod: &Value) -> Value {
        serde_json::from_str(pod["spec"]["containers"][1]["env"][0]["value"].as_str().unwrap()).unwrap()
    }

    #[test]
    fn each_kind_of_probe_is_rewritten_to_the_agent() {
        let mut pod = pod(&json!({"name": "a", "ports": [{"name": "web", "containerPort": 80}],
            "readinessProbe": {"httpGet": {"port": "web", "path": "/r", "scheme": "HTTPS"}, "timeoutSeconds": 3},
            "livenessProbe": {"tcpSocket": {"port": 81}}, "startupProbe": {"grpc": {"port": 82}},
            "lifecycle": {"preStop": {"httpGet": {"port": 83}}, "postStart": {"exec": {"command": ["x"]}}}}));
        rewrite(&mut pod, 15020, false);
        assert_eq!(
            probers(&pod),
            json!({
            "/app-health/a/livez": {"tcpSocket": {"port": 81}},
            "/app-health/a/readyz": {"httpGet": {"path": "/r", "port": 80, "scheme": "HTTPS"}, "timeoutSeconds": 3},
            "/app-health/a/startupz": {"grpc": {"port": 82, "service": null}},
            "/app-lifecycle/a/prestopz": {"httpGet": {"port": 83}}})
        );
        let a = &pod["spec"]["containers"][0];
        assert_eq!(
            a["readinessProbe"]["httpGet"],
            json!({"port": 15020, "path": "/app-health/a/readyz", "scheme": "HTTP"})
        );
        assert_eq!(a["livenessProbe"], json!({"httpGet": {"path": "/app-health/a/livez", "port": 15020}}));
        assert_eq!(a["lifecycle"]["postStart"], json!({"exec": {"command": ["x"]}}));
    }

    #[test]
    fn a_probe_of_an_unknown_port_stays() {
        let before = pod(&json!({"name": "a", "livenessProbe": {"httpGet": {"port": "nosuch"}}}));
        let mut after = before.clone();
        rewrite(&mut after, 15020, false);
        assert_eq!(after, before);
    }

    #[test]
    fn a_second_injection_keeps_the_recorded_originals() {
        let mut once = pod(&json!({"name": "a", "livenessProbe": {"httpGet": {"port": 80}}}));
        rewrite(&mut once, 15020, false);
        let mut twice = once.clone();
        rewrite(&mut twice, 15020, true);
        assert_eq!(twice, once);
        twice["spec"]["containers"][0]["readinessProbe"] = json!({"tcpSocket": {"port": 81}});
        rewrite(&mut twice, 15020, true);
        let both = json!({"/app-health/a/livez": {"httpGet": {"port": 80}}, "/app-health/a/readyz": {"tcpSocket": {"port": 81}}});
        assert_eq!(probers(&twice), both);
    }
}
