//! A node with as many pods as a large one has, and the lines that the plugin logs about them.

use serde_json::{Value, json};

use crate::api::Api;
use crate::daemon::pod;

/// The number of pods.
pub const PODS: usize = 250;

fn name(number: usize) -> String {
    format!("recommendations-{:08x}-{number:05}", 0x5bd1_e995_u32)
}

/// Creates the pods, each with a parameter.
pub fn create(api: &Api) {
    for number in 0..PODS {
        let mut pod = pod(&name(number), &format!("u{number}"));
        pod["metadata"]["annotations"]["traffic.sidecar.istio.io/excludeOutboundPorts"] = "3306,5432".into();
        api.put(pod);
    }
}

/// The line of the plugin about the ADD of a pod.
pub fn line(number: usize) -> Value {
    json!({ "level": "info", "msg": "pod redirected", "cmd": "ADD", "pod": format!("shop/{}", name(number)), "uid": format!("u{number}"),
            "source": "agent", "verdict": "redirected", "backend": "iptables-nft", "change": "created", "ipv6": true, "elapsed_us": 1500 })
}
