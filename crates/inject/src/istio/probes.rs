//! Rewriting of probes and lifecycle hooks to the proxy's agent, because the kubelet has no certificate for mTLS.
//!
//! A rewritten probe is an HTTP request to the agent's status port. The originals are recorded in a variable of the
//! sidecar.

mod restore;

use std::collections::BTreeMap;

use contract::{annotation, container};
use gocompat::parse_bool;
use gotemplate::{Budget, Exceeded};
use serde_json::{Map, Value, json};

use super::early::{Context, Early};
use super::handler::{HANDLERS, Handler, is_of_other_host, target};
use crate::gojson;
use crate::patch::Operation;
use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};
use crate::typed::Struct;
pub(super) use restore::{renew, restore, rewritten_port};

pub(super) const PROBERS: &str = "ISTIO_KUBE_APP_PROBERS";

/// The steps charged per rewritten handler: its type is checked, it is recorded, and the patch has up to three operations for it.
const STEPS_PER_HANDLER: usize = 50;

/// Whether a pod's probes are rewritten: a valid annotation takes precedence over the configuration.
pub(super) fn are_rewritten(pod: &Value, configured: bool) -> bool {
    pod::annotation(pod, annotation::REWRITE_PROBES).and_then(parse_bool).unwrap_or(configured)
}

/// Rewrites the probes of all containers except the sidecar. The pod's annotation may override the status port of `context`.
/// `injected`: whether the pod was injected before, so that the recorded originals stay.
///
/// A handler stays unchanged if it names a port that its container lacks, if it is an HTTP request to another host, or if the agent would
/// start too late for it; see [`Early`]. The containers must be in their final order.
///
/// # Errors
/// The budget is spent.
pub(super) fn rewrite(pod: &mut Value, context: Context, injected: bool, budget: &mut Budget) -> Result<(), Exceeded> {
    let status_port = context.status_port;
    if pod::sidecar(pod).is_none() {
        return Ok(());
    }
    let Some(target) = target(pod, status_port) else { return Ok(()) };
    let mut originals = BTreeMap::new();
    for which in [INIT_CONTAINERS, CONTAINERS] {
        let early = Early::of(pod, which, context);
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
            let has_port = action.is_some_and(|action| action.is_object() && has_port(action));
            if !has_port || is_of_other_host(container, handler.pointer) {
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

/// Returns the originals that an earlier injection recorded in the pod's sidecar.
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

/// Returns a handler in the agent's format; `None` if it is absent, uses the agent's port (rewritten or not), or uses a port that does not
/// exist or that the container lacks. `ports`: the status port of the proxy configuration, and that of the pod.
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

/// Whether the port of an action is a name, or a number from 1 to 65535. The API server refuses any other number, which rewriting would
/// hide.
fn has_port(action: &Value) -> bool {
    action.get("port").and_then(Value::as_i64).is_none_or(|port| (1..=65535).contains(&port))
}

/// Returns the name of the API type of an action.
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
mod tests;
