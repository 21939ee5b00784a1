//! Rewriting of probes and lifecycle hooks to the proxy's agent, because the kubelet has no certificate for mTLS.
//!
//! A rewritten probe is an HTTP request to the agent's status port. The originals are recorded in a variable of the
//! sidecar.

mod restore;

use std::collections::BTreeMap;

use gocompat::parse_bool;
use gotemplate::{Budget, Exceeded};
use serde_json::{Map, Value, json};

use super::early::Early;
use crate::contract::{annotation, container};
use crate::inject::gojson;
use crate::inject::patch::Operation;
use crate::inject::pod::{self, CONTAINERS, INIT_CONTAINERS};
use crate::inject::typed::Struct;
pub(super) use restore::{renew, restore, rewritten_port};

pub(super) const PROBERS: &str = "ISTIO_KUBE_APP_PROBERS";

/// Steps for a rewritten handler: its type is checked, it is recorded, and the patch has up to three operations for it.
const STEPS_PER_HANDLER: usize = 50;

/// The probes and lifecycle hooks: JSON pointer in a container, path on the agent's port, and whether it is a probe.
/// The three probes precede the hooks, which the patch of a legacy template does not rewrite.
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

/// Rewrites the probes of all containers except the sidecar. `status_port`: that of the proxy configuration, which the
/// pod's annotation may override. `injected`: whether the pod was injected before, so that the recorded originals stay.
///
/// A probe stays unchanged if the container has no port with the name in the probe, and so does a handler for which the agent
/// would start too late; see [`Early`]. The containers are in their final order.
///
/// # Errors
/// The budget is spent.
pub(super) fn rewrite(pod: &mut Value, status_port: u16, injected: bool, budget: &mut Budget) -> Result<(), Exceeded> {
    if pod::sidecar(pod).is_none() {
        return Ok(());
    }
    let Some(target) = target(pod, status_port) else { return Ok(()) };
    let mut originals = BTreeMap::new();
    for which in [INIT_CONTAINERS, CONTAINERS] {
        let early = Early::of(pod, which);
        let containers = pod::containers_mut(pod, which).iter_mut().enumerate();
        for (at, container) in containers.filter(|(_, container)| pod::name(container) != container::PROXY) {
            for handler in &HANDLERS {
                if early.keeps(at, container, handler.pointer) {
                    continue;
                }
                if let Some(original) = original(container, handler, (status_port, target)) {
                    budget.step(STEPS_PER_HANDLER)?;
                    originals.insert(handler.path(pod::name(container)), original);
                    redirect(container, handler, target);
                }
            }
        }
    }
    if let (false, Some(sidecar)) = (originals.is_empty(), pod::sidecar_mut(pod)) {
        record(sidecar, originals.into_iter().collect(), injected, budget)?;
    }
    Ok(())
}

/// Returns the operations that rewrite the HTTP probes of applications for the patch of a legacy template, and the
/// record of the originals for the sidecar.
///
/// # Errors
/// The budget is spent.
pub(super) fn http_probes(
    pod: &Value,
    status_port: u16,
    budget: &mut Budget,
) -> Result<(Vec<Operation>, Option<String>), Exceeded> {
    let Some(target) = target(pod, status_port) else { return Ok((Vec::new(), None)) };
    let (mut found, mut known) = (Vec::new(), BTreeMap::new());
    let applications = pod::containers(pod, CONTAINERS).iter().enumerate();
    for (at, container) in applications.filter(|(_, c)| pod::name(c) != container::PROXY) {
        for handler in &HANDLERS[..3] {
            let action = container.pointer(handler.pointer).map(|probe| &probe["httpGet"]);
            if action.is_none_or(|action| !action.is_object() || !has_port(action)) {
                continue;
            }
            budget.step(STEPS_PER_HANDLER)?;
            if let Some(original) = original(container, handler, (status_port, target)) {
                known.insert(handler.path(pod::name(container)), original);
            }
            let mut rewritten = container.clone();
            redirect(&mut rewritten, handler, target);
            let probe = rewritten.pointer(handler.pointer).cloned().unwrap_or_default();
            found.push(Operation::Replace { path: format!("/spec/containers/{at}{}", handler.pointer), value: probe });
        }
    }
    for (path, original) in recorded(pod, budget)? {
        known.entry(path).or_insert(original);
    }
    let known: Map<String, Value> = known.into_iter().collect();
    let text = (!known.is_empty()).then(|| gojson::encode(&Value::Object(known), budget)).transpose()?;
    Ok((found, text))
}

/// Returns the originals that an earlier injection recorded in the pod's sidecar, which is going to be replaced.
///
/// # Errors
/// The budget is spent.
fn recorded(pod: &Value, budget: &mut Budget) -> Result<Map<String, Value>, Exceeded> {
    let sidecar = pod::sidecar(pod).filter(|_| pod::annotation(pod, annotation::STATUS).is_some());
    let variables = sidecar.map(|sidecar| pod::list(sidecar, "env")).unwrap_or_default();
    let variable = variables.iter().find(|variable| pod::name(variable) == PROBERS);
    let Some(variable) = variable else { return Ok(Map::new()) };
    Ok(gojson::decode(pod::text(variable, "value"), budget)?.unwrap_or_default())
}

/// Returns the agent's status port: that in the pod's annotation, else that of the proxy configuration. `None` if it is 0: the agent listens
/// on no port then, and the API server refuses a probe of port 0. A privileged port counts, because a container runtime
/// may allow each program to listen on it.
fn target(pod: &Value, status_port: u16) -> Option<u16> {
    let own = pod::annotation(pod, annotation::STATUS_PORT).and_then(|port| port.parse().ok());
    Some(own.unwrap_or(status_port)).filter(|port| *port != 0)
}

/// Returns a probe in the agent's format; `None` if it is absent, is of the agent's port (rewritten or not), or has a port that does not
/// exist or that the container lacks. `ports`: the status ports of the proxy configuration and of the pod.
fn original(container: &Value, handler: &Handler, ports: (u16, u16)) -> Option<Value> {
    let (status_port, target) = ports;
    let probe = container.pointer(handler.pointer)?;
    let kind = *handler.actions().iter().find(|kind| probe.get(**kind).is_some_and(Value::is_object))?;
    let action = &probe[kind];
    let mut known = Struct::named(type_of(kind))?.canonical(action.clone()).ok()?;
    if !has_port(action) {
        return None;
    }
    if kind != "grpc" {
        let port = pod::numeric_port(container, action.get("port")?)?;
        if [status_port, target].into_iter().any(|agent| port == u64::from(agent)) {
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

/// Whether the port of an action is a name or one that exists: the API server refuses another one, and a rewritten probe would
/// hide it.
fn has_port(action: &Value) -> bool {
    action.get("port").and_then(Value::as_i64).is_none_or(|port| (1..=65535).contains(&port))
}

/// Returns the name of the API's type of an action.
fn type_of(action: &str) -> &'static str {
    match action {
        "httpGet" => "core.HTTPGetAction",
        "tcpSocket" => "core.TCPSocketAction",
        _ => "core.GRPCAction",
    }
}

/// Records the originals in the sidecar. Originals of an earlier injection stay, since their probes are already
/// rewritten.
fn record(
    sidecar: &mut Value,
    mut originals: Map<String, Value>,
    injected: bool,
    budget: &mut Budget,
) -> Result<(), Exceeded> {
    let env = pod::list_mut(sidecar, "env");
    let known = env.iter_mut().find(|variable| injected && pod::name(variable) == PROBERS);
    let Some(variable) = known else {
        let text = gojson::encode(&Value::Object(originals), budget)?;
        pod::push_env(sidecar, PROBERS, &text);
        return Ok(());
    };
    if let Ok(Value::Object(old)) = gojson::decode(pod::text(variable, "value"), budget)? {
        originals.extend(old);
    }
    originals.sort_keys();
    variable["value"] = gojson::encode(&Value::Object(originals), budget)?.into();
    Ok(())
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
    use gotemplate::Limits;

    use super::*;

    fn pod(container: &Value) -> Value {
        json!({"spec": {"containers": [container, {"name": "istio-proxy"}]}})
    }

    #[test]
    fn a_probe_of_a_port_that_does_not_exist_is_left_to_the_api_server() {
        for kind in ["httpGet", "tcpSocket", "grpc"] {
            for (port, is_rewritten) in [(0, false), (70_000, false), (-1, false), (65_535, true)] {
                let mut pod = pod(&json!({"name": "app", "livenessProbe": {kind: {"port": port}}}));
                let before = pod.clone();
                rewrite(&mut pod, 15020, false);
                assert_eq!(pod != before, is_rewritten, "{kind} {port}");
                let patched = http_probes(&before, 15020, &mut Budget::default()).unwrap().0;
                assert_eq!(patched.len() == 1, is_rewritten && kind == "httpGet", "{kind} {port}");
            }
        }
    }

    fn rewrite(pod: &mut Value, status_port: u16, injected: bool) {
        super::rewrite(pod, status_port, injected, &mut Budget::default()).unwrap();
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
    fn each_rewritten_handler_is_charged() {
        let probe = json!({"httpGet": {"port": 80}});
        let pod = pod(&json!({"name": "a", "readinessProbe": probe, "livenessProbe": probe, "startupProbe": probe}));
        for steps in [149, 10_000] {
            let budget = || Budget::new(Limits { steps, ..Limits::default() });
            let (mut all, mut legacy) = (budget(), budget());
            let rewritten = super::rewrite(&mut pod.clone(), 15020, false, &mut all);
            let operations = http_probes(&pod, 15020, &mut legacy).map(|(operations, _)| operations.len());
            if steps < 150 {
                assert_eq!((rewritten, operations), (Err(Exceeded::Steps(steps)), Err(Exceeded::Steps(steps))));
            } else {
                assert_eq!((rewritten, operations), (Ok(()), Ok(3)));
                assert!(all.left().steps <= steps - 150 && legacy.left().steps <= steps - 150);
            }
        }
    }

    #[test]
    fn recorded_originals_are_charged() {
        let mut pod = pod(&json!({"name": "a", "livenessProbe": {"httpGet": {"port": 80}}}));
        pod["metadata"] = json!({"annotations": {annotation::STATUS: "{}"}});
        let known = format!("{{\"/app-health/b/livez\": [{}0]}}", "0,".repeat(1000));
        pod["spec"]["containers"][1]["env"] = json!([{"name": PROBERS, "value": known}]);
        for (steps, fits) in [(2000, false), (10_000, true)] {
            let budget = || Budget::new(Limits { steps, ..Limits::default() });
            let all = super::rewrite(&mut pod.clone(), 15020, true, &mut budget());
            let legacy = http_probes(&pod, 15020, &mut budget());
            assert_eq!((all.is_ok(), legacy.is_ok()), (fits, fits), "{all:?} {legacy:?}");
        }
    }

    #[test]
    fn a_probe_of_an_unknown_port_stays() {
        let before = pod(&json!({"name": "a", "livenessProbe": {"httpGet": {"port": "nosuch"}}}));
        let mut after = before.clone();
        rewrite(&mut after, 15020, false);
        assert_eq!(after, before);
    }

    #[test]
    fn a_probe_of_the_agents_port_stays_whether_an_annotation_or_the_configuration_sets_the_port() {
        for (own, configured) in [(None, 15099), (Some("15099"), 15020)] {
            let probe = json!({"httpGet": {"path": "/healthz/ready", "port": 15099}});
            let mut before =
                pod(&json!({"name": "a", "livenessProbe": probe, "readinessProbe": {"httpGet": {"port": 80}}}));
            own.into_iter().for_each(|own| before["metadata"] = json!({"annotations": {annotation::STATUS_PORT: own}}));
            rewrite(&mut before, configured, false);
            let app = &before["spec"]["containers"][0];
            assert_eq!((&app["livenessProbe"], &app["readinessProbe"]["httpGet"]["port"]), (&probe, &json!(15099)));
        }
    }

    #[test]
    fn a_second_legacy_injection_records_no_rewritten_probe() {
        for own in [None, Some("15099")] {
            let mut pod = pod(&json!({"name": "a", "livenessProbe": {"httpGet": {"port": 80}}}));
            if let Some(port) = own {
                pod["metadata"]["annotations"][annotation::STATUS_PORT] = port.into();
            }
            let (operations, first) = http_probes(&pod, 15020, &mut Budget::default()).unwrap();
            let mut once = crate::inject::patch::apply(pod, &operations).unwrap();
            once["metadata"]["annotations"][annotation::STATUS] = "{}".into();
            once["spec"]["containers"][1]["env"] = json!([{"name": PROBERS, "value": first.clone().unwrap()}]);
            let (_, second) = http_probes(&once, 15020, &mut Budget::default()).unwrap();
            assert_eq!(second, first, "{own:?}");
            once["spec"]["containers"][0]["livenessProbe"]["httpGet"] = json!({"port": 81});
            let (_, changed) = http_probes(&once, 15020, &mut Budget::default()).unwrap();
            assert_eq!(changed.unwrap(), r#"{"/app-health/a/livez":{"httpGet":{"port":81}}}"#, "{own:?}");
        }
    }

    #[test]
    fn probes_stay_if_the_agent_has_no_status_port() {
        let mut before = pod(&json!({"name": "a", "livenessProbe": {"httpGet": {"port": 80}}}));
        before["metadata"] = json!({"annotations": {annotation::STATUS_PORT: "0"}});
        let mut after = before.clone();
        rewrite(&mut after, 15020, false);
        assert_eq!(after, before);
        assert_eq!(http_probes(&before, 15020, &mut Budget::default()), Ok((Vec::new(), None)));
        before["metadata"] = json!({"annotations": {annotation::STATUS_PORT: "123"}});
        rewrite(&mut before, 15020, false);
        assert_eq!(before["spec"]["containers"][0]["livenessProbe"]["httpGet"]["port"], 123);
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
