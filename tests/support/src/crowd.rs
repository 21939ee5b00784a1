//! The pods of a large node, and the lines that the plugin logs about them.

use serde_json::{Value, json};

use crate::api::Api;
use crate::daemon::pod;

/// The number of pods on the node.
pub const PODS: usize = 250;

fn name(number: usize) -> String {
    format!("recommendations-{:08x}-{number:05}", 0x5bd1_e995_u32)
}

/// Creates the pods, each with an annotation that configures redirection.
pub fn create(api: &Api) {
    for number in 0..PODS {
        let mut pod = pod(&name(number), &format!("u{number}"));
        pod["metadata"]["annotations"]["traffic.sidecar.istio.io/excludeOutboundPorts"] = "3306,5432".into();
        api.put(pod);
    }
}

/// Returns the line that the plugin logs for the ADD of a pod.
pub fn line(number: usize) -> Value {
    json!({ "level": "info", "msg": "pod redirected", "cmd": "ADD", "pod": format!("shop/{}", name(number)), "uid": format!("u{number}"),
            "source": "agent", "verdict": "redirected", "backend": "iptables-nft", "change": "created", "ipv6": true, "elapsed_us": 1500 })
}
