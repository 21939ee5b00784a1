//! Pods as users have them, and what can be read from them.

use serde_json::{Value, json};

use crate::cluster::IMAGE;
use crate::runtime::pod::APP_PORT;

/// A pod that nobody has injected.
pub(crate) fn plain() -> Value {
    json!({
        "metadata": { "labels": { "app": "web" }, "annotations": {} },
        "spec": {
            // Process 1 of a container has no default for SIGTERM.
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "app", "image": IMAGE, "command": ["/pod_app", "serve", APP_PORT.to_string()],
                "securityContext": { "runAsUser": 1000, "runAsGroup": 1000 },
                "readinessProbe": { "tcpSocket": { "port": APP_PORT }, "periodSeconds": 1 },
            }],
        },
    })
}

/// A pod of its own.
pub(crate) fn standalone(name: &str, mut pod: Value) -> Value {
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = name.into();
    pod
}

/// Is it Ready?
pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}
