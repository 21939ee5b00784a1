//! Builds the events that report actions on pods. Pure: the time is an argument.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use serve::event::{Content, Origin, pod, warning};

use super::broken::Broken;

/// Returns an event about a pod. The name contains the time in nanoseconds to be unique.
pub(super) fn event(broken: &Broken, origin: Origin<'_>, content: Content<'_>, now: Timestamp) -> Event {
    let pod = ObjectReference {
        resource_version: Some(broken.version.clone()),
        ..pod(&broken.pod.namespace, &broken.pod.name, Some(&broken.uid))
    };
    warning(pod, origin, content, &format!("{:x}", now.as_nanosecond()), now)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::tests::broken;

    #[test]
    fn has_source_pod_times_and_message() {
        let origin = Origin { component: "cni-repair", host: Some("n"), instance: "n" };
        let content = Content { reason: "EvictBrokenPod", message: "evicted" };
        let event = event(&broken(), origin, content, Timestamp::from_second(1_767_225_600).unwrap());
        let event = serde_json::to_value(event).unwrap();
        assert_eq!(event["metadata"], json!({ "name": "web-0.18867251edfa0000", "namespace": "shop" }));
        assert_eq!(
            (&event["firstTimestamp"], &event["lastTimestamp"]),
            (&json!("2026-01-01T00:00:00Z"), &json!("2026-01-01T00:00:00Z"))
        );
        assert_eq!(event["source"], json!({ "component": "cni-repair", "host": "n" }));
        assert_eq!((&event["apiVersion"], &event["kind"]), (&json!("v1"), &json!("Event")));
        assert_eq!((&event["involvedObject"]["kind"], &event["count"]), (&json!("Pod"), &json!(1)));
    }
}
