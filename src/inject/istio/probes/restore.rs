//! The original probes and lifecycle hooks, from the sidecar's record of them.

use std::collections::HashMap;

use gotemplate::{Budget, Exceeded};
use serde_json::{Map, Value};

use super::{HANDLERS, PROBERS};
use crate::inject::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// Puts the recorded originals back in place of the requests to the agent that stand for them, whose path is the record's
/// key even if the container has another name now. A probe that is no such request was written after the injection and
/// stays. `ports`: the ports of the containers at the injection, by which a recorded number gets its name back.
pub(in crate::inject::istio) fn restore(pod: &mut Value, recorded: &Map<String, Value>, ports: &[Value]) {
    if recorded.is_empty() {
        return;
    }
    for which in [INIT_CONTAINERS, CONTAINERS] {
        for container in pod::containers_mut(pod, which) {
            let present = pod::list(container, "ports").to_vec();
            for handler in &HANDLERS {
                let Some(Value::Object(probe)) = container.pointer_mut(handler.pointer) else { continue };
                let path = probe.get("httpGet").map(|action| pod::text(action, "path")).unwrap_or_default();
                let Some(original) = recorded.get(path).and_then(Value::as_object) else { continue };
                let kind = handler.actions().iter().find(|kind| original.get(**kind).is_some_and(Value::is_object));
                if let Some(kind) = kind {
                    probe.shift_remove("httpGet");
                    let mut action = original.get(*kind).cloned().unwrap_or_default();
                    pod::strip_nulls(&mut action);
                    if let (false, Some(name)) = (*kind == "grpc", name_of(&action, &present, ports)) {
                        action["port"] = name.into();
                    }
                    probe.insert((*kind).to_owned(), action);
                }
            }
        }
    }
}

/// Returns the name that the port of an action had at the injection, if the container has a port of this name. A port
/// that no list of the injection names has its present number.
fn name_of(action: &Value, present: &[Value], ports: &[Value]) -> Option<String> {
    let number = action.get("port").filter(|port| port.is_u64());
    let is_it = |port: &&Value| {
        let name = pod::name(port);
        let mut former = ports.iter().filter(|port| pod::name(port) == name).peekable();
        !name.is_empty()
            && match former.peek() {
                Some(_) => former.any(|former| former.get("containerPort") == number),
                None => port.get("containerPort") == number,
            }
    };
    number.and_then(|_| present.iter().find(is_it)).map(|port| pod::name(port).to_owned())
}

/// Puts the probes of a pod before a former injection with the same settings back, and drops the record of them.
/// [`rewrite`](super::rewrite) then records the present ones.
///
/// # Errors
/// The budget is spent.
pub(in crate::inject::istio) fn renew(pod: &mut Value, before: &Value, budget: &mut Budget) -> Result<(), Exceeded> {
    let recorded = super::recorded(pod, budget)?;
    if recorded.is_empty() {
        return Ok(());
    }
    for which in [INIT_CONTAINERS, CONTAINERS] {
        let own: HashMap<&str, &Value> =
            pod::containers(before, which).iter().rev().map(|own| (pod::name(own), own)).collect();
        for container in pod::containers_mut(pod, which) {
            let Some(own) = own.get(pod::name(container)) else { continue };
            for handler in &HANDLERS {
                let (Some(own), Some(probe)) = (own.pointer(handler.pointer), container.pointer_mut(handler.pointer))
                else {
                    continue;
                };
                let path = probe.get("httpGet").map(|action| pod::text(action, "path")).unwrap_or_default();
                if recorded.contains_key(path) {
                    probe.clone_from(own);
                }
            }
        }
    }
    if let Some(sidecar) = pod::sidecar_mut(pod) {
        pod::remove_env(sidecar, PROBERS);
    }
    Ok(())
}

/// Returns the port of the first probe or hook of a container that is a request to the agent.
pub(in crate::inject::istio) fn rewritten_port(container: &Value) -> Option<u64> {
    HANDLERS.iter().find_map(|handler| {
        let action = container.pointer(handler.pointer)?.get("httpGet")?;
        let is_rewritten = pod::text(action, "path").starts_with(&format!("/{}/", handler.path.0));
        action.get("port").filter(|_| is_rewritten)?.as_u64()
    })
}
