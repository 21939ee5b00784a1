//! The event that tells people what repair did to a pod.
//!
//! Core/v1, for Istio's role allows these and not those of events.k8s.io. Pure: the time is an argument.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::broken::Broken;

/// Who speaks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Speaker<'a> {
    /// The controller.
    pub(super) component: &'static str,
    /// Its node, or that of the pod.
    pub(super) node: &'a str,
}

/// Bytes of a message, as much as kubelets write.
const LONGEST: usize = 1024;
/// Bytes of the pod's name in that of an event, which may have 253 with the time behind it.
const LONGEST_NAME: usize = 230;

/// An event about a pod. Its name is unique as long as a pod has no two of them in a nanosecond.
pub(super) fn event(
    broken: &Broken,
    Speaker { component, node }: Speaker<'_>,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Value {
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let message = &message[..message.floor_char_boundary(LONGEST)];
    let pod = &broken.pod.name;
    let stem = pod[..pod.floor_char_boundary(LONGEST_NAME)].trim_end_matches(['-', '.']);
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

    const REPAIR: Speaker<'_> = Speaker { component: "cni-repair", node: "n" };

    #[test]
    fn says_who_whom_when_and_what() {
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
    fn names_and_messages_keep_to_what_the_api_server_takes() {
        let mut long = broken();
        long.pod.name = format!("{}-{}", "a".repeat(229), "b".repeat(23));
        let event = event(&long, REPAIR, "R", &"ü".repeat(9999), Timestamp::now());
        let name = event["metadata"]["name"].as_str().unwrap();
        assert!(name.len() <= 253 && name.starts_with(&("a".repeat(229) + ".")), "{name}");
        assert_eq!(event["message"].as_str().unwrap().len(), 1024);
        assert_eq!(event["involvedObject"]["name"], long.pod.name);
    }
}
