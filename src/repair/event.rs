//! Builds the events that report actions on pods.
//!
//! Events have the API version core/v1, because Istio's role does not include events.k8s.io. Pure: the time is an
//! argument.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::broken::Broken;

/// The origin of an event.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventSource<'a> {
    pub(super) component: &'static str,
    /// The controller's node, or the pod's.
    pub(super) node: &'a str,
}

/// The size limit of a message in bytes, as in kubelets.
const MAX_MESSAGE: usize = 1024;
/// The size limit, in bytes, of the pod's name within the event's name. The event's name also contains the time, and
/// may have 253 bytes in total.
const MAX_NAME: usize = 230;

/// Returns an event about a pod. The name contains the time in nanoseconds to be unique.
pub(super) fn event(
    broken: &Broken,
    EventSource { component, node }: EventSource<'_>,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Value {
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let message = &message[..message.floor_char_boundary(MAX_MESSAGE)];
    let pod = &broken.pod.name;
    let stem = pod[..pod.floor_char_boundary(MAX_NAME)].trim_end_matches(['-', '.']);
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {
            "namespace": broken.pod.namespace,
            "name": format!("{stem}.{:x}", now.as_nanosecond()),
        },
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "namespace": broken.pod.namespace, "name": pod,
            "uid": broken.uid, "resourceVersion": broken.version,
        },
        "type": "Warning", "reason": reason, "message": message, "count": 1,
        "firstTimestamp": time, "lastTimestamp": time,
        "source": { "component": component, "host": node },
        "reportingComponent": component, "reportingInstance": node,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repair::decide::tests::broken;

    const REPAIR: EventSource<'_> = EventSource { component: "cni-repair", node: "n" };

    #[test]
    fn has_source_pod_times_and_message() {
        let event =
            event(&broken(), REPAIR, "EvictBrokenPod", "evicted", Timestamp::from_second(1_767_225_600).unwrap());
        assert_eq!(event["metadata"]["name"], "web-0.18867251edfa0000");
        assert_eq!(event["metadata"]["namespace"], "shop");
        assert_eq!(
            (&event["firstTimestamp"], &event["lastTimestamp"]),
            (&json!("2026-01-01T00:00:00Z"), &json!("2026-01-01T00:00:00Z"))
        );
        assert_eq!(event["source"], json!({ "component": "cni-repair", "host": "n" }));
    }

    #[test]
    fn names_and_messages_keep_to_the_limits_of_the_api_server() {
        let mut long = broken();
        long.pod.name = format!("{}-{}", "a".repeat(229), "b".repeat(23));
        let event = event(&long, REPAIR, "R", &"ü".repeat(9999), Timestamp::now());
        let name = event["metadata"]["name"].as_str().unwrap();
        assert!(name.len() <= 253 && name.starts_with(&("a".repeat(229) + ".")), "{name}");
        assert_eq!(event["message"].as_str().unwrap().len(), 1024);
        assert_eq!(event["involvedObject"]["name"], long.pod.name);
    }
}
