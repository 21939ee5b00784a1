//! The original probes and lifecycle hooks, from the sidecar's record of them.

use serde_json::{Map, Value};

use super::HANDLERS;
use crate::inject::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// Puts the recorded originals back in place of the requests to the agent that stand for them. A probe that is no such
/// request was written after the injection and stays.
pub(in crate::inject::istio) fn restore(pod: &mut Value, recorded: &Map<String, Value>) {
    if recorded.is_empty() {
        return;
    }
    for which in [INIT_CONTAINERS, CONTAINERS] {
        for container in pod::containers_mut(pod, which) {
            for handler in &HANDLERS {
                let path = handler.path(pod::name(container));
                let original = recorded.get(&path).and_then(Value::as_object);
                let (Some(original), Some(Value::Object(probe))) = (original, container.pointer_mut(handler.pointer))
                else {
                    continue;
                };
                let rewritten = probe.get("httpGet").is_some_and(|action| pod::text(action, "path") == path);
                let kind = handler.actions().iter().find(|kind| original.get(**kind).is_some_and(Value::is_object));
                if let (true, Some(kind)) = (rewritten, kind) {
                    probe.shift_remove("httpGet");
                    let mut action = original.get(*kind).cloned().unwrap_or_default();
                    pod::strip_nulls(&mut action);
                    probe.insert((*kind).to_owned(), action);
                }
            }
        }
    }
}
