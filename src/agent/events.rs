//! Writes Events about pods whose ADD succeeded without redirection, because they run in a sandboxed runtime, that is, with a
//! kernel of their own, which the rules do not reach. The owners of the pods do not see the node's log.
//!
//! `sockets` makes a [`Notice`] of the plugin's log line. No invocation waits for an Event: a notice for which the channel has no
//! capacity is dropped, and the loss is logged.

#![expect(clippy::disallowed_methods, reason = "owns the clock of Events")]

use jiff::Timestamp;
use kube::Client;
use podfacts::PodName;
use serde_json::Value;
use serve::event::{self, Content, Origin};
use serve::log::{Record, printable_line};
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::cache::{Cache, Store};

/// The component that reports the Events.
const COMPONENT: &str = "istio-cni";
/// The reason of the Events.
const REASON: &str = "SandboxNotRedirected";
/// The capacity of the channel.
const CAPACITY: usize = 64;

/// The content of an Event: a pod of this node and the sandboxed runtime in which it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pod: PodName,
    uid: String,
    /// The sandboxed runtime, as the plugin describes it.
    sandbox: String,
}

/// Creates the channel between the plugin's lines and [`write_events`].
pub fn channel() -> (Sender<Notice>, Receiver<Notice>) {
    mpsc::channel(CAPACITY)
}

/// Returns the notice in a log line; `None` unless the line reports an ADD in a sandboxed runtime and this node has the pod.
pub(super) fn notice(record: &Record, cache: &Cache) -> Option<Notice> {
    let text = |key: &str| record.fields.get(key).and_then(Value::as_str);
    if text("cmd")? != "ADD" || text("reason")? != contract::SANDBOX {
        return None;
    }
    let (namespace, name) = text("pod")?.split_once('/')?;
    let pod = PodName { namespace: namespace.to_owned(), name: name.to_owned() };
    let uid = cache.read(|store: &Store| store.uid(&pod).map(str::to_owned))?;
    if text("uid").is_some_and(|given| given != uid) {
        return None;
    }
    Some(Notice { pod, uid, sandbox: printable_line(text(contract::SANDBOX)?) })
}

/// Writes Events until all senders are dropped.
pub async fn write_events(client: Client, node: &str, mut notices: Receiver<Notice>) {
    while let Some(notice) = notices.recv().await {
        event::create(&client, &event(notice, node, Timestamp::now())).await;
    }
}

/// Makes an Event. A pod has only one: Events about later CRI sandboxes of the pod have the same name, and are not created.
fn event(Notice { pod, uid, sandbox }: Notice, node: &str, now: Timestamp) -> k8s_openapi::api::core::v1::Event {
    let message = format!(
        "the pod's traffic is not redirected to its sidecar: rules of the node's kernel do not reach its sandbox ({sandbox})"
    );
    let suffix = format!("sandbox.{}", uid.split('-').next().unwrap_or_default());
    let object = event::pod(&pod.namespace, &pod.name, Some(&uid));
    let origin = Origin { component: COMPONENT, host: Some(node), instance: node };
    event::warning(object, origin, Content { reason: REASON, message: &message }, &suffix, now)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use podfacts::PodFacts;

    use super::super::cache::Change;
    use super::super::relay;
    use super::*;

    fn noticed(fields: &Value) -> Option<Notice> {
        let cache = Cache::default();
        let pod = PodName { namespace: "shop".into(), name: "web-0".into() };
        cache.apply(Change::Applied(pod, PodFacts { uid: "0a1b-2".into(), ..PodFacts::default() }));
        let mut line = json!({ "level": "warn", "msg": "m", "cmd": "ADD", "reason": "sandbox", "sandbox": "s\u{1b}" });
        line.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let body = serde_json::to_vec(&[line.to_string()]).unwrap();
        notice(&relay::records(&body, Timestamp::UNIX_EPOCH).unwrap()[0], &cache)
    }

    #[test]
    fn a_line_about_a_sandbox_of_a_known_pod_becomes_an_event() {
        let found = noticed(&json!({ "pod": "shop/web-0", "uid": "0a1b-2" })).unwrap();
        let event = event(found, "n", Timestamp::UNIX_EPOCH);
        assert_eq!(event.metadata.name.as_deref(), Some("web-0.sandbox.0a1b"));
        assert_eq!(event.involved_object.uid.as_deref(), Some("0a1b-2"));
        assert!(event.message.unwrap().ends_with("its sandbox (s\\u{1b})"));
        assert!(noticed(&json!({ "pod": "shop/web-0" })).is_some(), "runtimes need not pass the UID");
        for other in [
            json!({ "pod": "shop/web-0", "uid": "u2" }),
            json!({ "pod": "shop/web-1" }),
            json!({ "pod": "web-0" }),
            json!({ "pod": "shop/web-0", "cmd": "CHECK" }),
            json!({ "pod": "shop/web-0", "reason": "converge" }),
            json!({ "pod": "shop/web-0", "sandbox": 1 }),
        ] {
            assert_eq!(noticed(&other), None, "{other}");
        }
    }
}
