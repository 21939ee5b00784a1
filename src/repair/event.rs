//! The event that tells people what repair did to a pod.
//!
//! Core/v1, for Istio's role allows these and not those of events.k8s.io. Pure: the time is an argument.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::broken::Broken;

/// Who speaks.
const COMPONENT: &str = "cni-repair";
/// Of a message; the API server takes 1024 bytes.
const LONGEST: usize = 900;

/// An event about a pod. Its name is unique as long as a pod has no two of them in a nanosecond.
pub(super) fn event(broken: &Broken, node: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let message: String = message.chars().take(LONGEST / char::MAX.len_utf8()).collect();
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {
            "namespace": broken.pod.namespace,
            "name": format!("{}.{:x}", broken.pod.name, now.as_nanosecond()),
        },
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "namespace": broken.pod.namespace, "name": broken.pod.name,
            "uid": broken.uid, "resourceVersion": broken.version,
        },
        "type": "Warning", "reason": reason, "message": message, "count": 1,
        "firstTimestamp": time, "lastTimestamp": time,
        "source": { "component": COMPONENT, "host": node },
        "reportingComponent": COMPONENT, "reportingInstance": node,
    })
}
