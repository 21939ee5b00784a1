//! Pods and Deployments of the trials, and predicates on their status.

use contract::{EXIT_VALIDATION, annotation, container};
use serde_json::{Value, json};

use test_support::runtime::node::IMAGE;
use test_support::runtime::pod::APP_PORT;

/// The value of the status annotation that an injector writes.
const STATUS: &str = r#"{"initContainers":["istio-validation"],"containers":["istio-proxy"],"revision":"default"}"#;

/// Returns a pod without a sidecar.
pub(crate) fn plain() -> Value {
    json!({
        "metadata": { "labels": { "app": "web" }, "annotations": {} },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "app", "image": IMAGE, "command": ["/pod_app", "serve", APP_PORT.to_string()],
                "securityContext": { "runAsUser": 1000, "runAsGroup": 1000 },
                "readinessProbe": { "tcpSocket": { "port": APP_PORT }, "periodSeconds": 1 },
            }],
        },
    })
}

/// Returns a pod with the annotations and containers that Istio's injector adds.
pub(crate) fn injected() -> Value {
    let mut pod = plain();
    for (key, value) in [
        (annotation::STATUS, STATUS),
        (annotation::INTERCEPTION_MODE, "REDIRECT"),
        (annotation::INCLUDE_OUTBOUND_CIDRS, "*"),
        (annotation::INCLUDE_INBOUND_PORTS, "*"),
        (annotation::EXCLUDE_INBOUND_PORTS, "15020"),
    ] {
        pod["metadata"]["annotations"][key] = value.into();
    }
    let locked = json!({
        "runAsUser": 1337, "runAsGroup": 1337, "runAsNonRoot": true, "readOnlyRootFilesystem": true,
        "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
    });
    let command = "/istio-iptables -p 15001 -z 15006 -u 1337 -m REDIRECT -i * -b * -d 15090,15021,15020 \
                   --run-validation --skip-rule-apply";
    pod["spec"]["initContainers"] = json!([{
        "name": container::VALIDATION, "image": IMAGE, "securityContext": locked,
        "command": command.split_whitespace().collect::<Vec<_>>(),
    }]);
    let proxy = json!({
        "name": container::PROXY, "image": IMAGE, "securityContext": locked, "args": ["proxy", "sidecar"],
        "command": ["/pod_proxy"],
    });
    pod["spec"]["containers"].as_array_mut().expect("a pod has containers").push(proxy);
    pod
}

/// Turns the validation container off, so that the pod also starts without redirection.
pub(crate) fn unvalidated(mut pod: Value) -> Value {
    let command = pod["spec"]["initContainers"][0]["command"].as_array_mut().expect("a command");
    command.retain(|argument| argument != "--run-validation");
    pod
}

/// Adds the settings that PodSecurity's level `restricted` requires.
pub(crate) fn confined(mut pod: Value) -> Value {
    pod["spec"]["securityContext"] = json!({ "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } });
    let app = &mut pod["spec"]["containers"][0]["securityContext"];
    app["allowPrivilegeEscalation"] = false.into();
    app["capabilities"] = json!({ "drop": ["ALL"] });
    pod
}

/// Moves the sidecar to the init containers, so that it ends with the application.
pub(crate) fn with_native_sidecar(mut pod: Value) -> Value {
    let mut proxy = pod["spec"]["containers"].as_array_mut().and_then(Vec::pop).expect("an injected pod has a sidecar");
    proxy["restartPolicy"] = "Always".into();
    pod["spec"]["initContainers"].as_array_mut().expect("it is validated").push(proxy);
    pod
}

/// Returns a Deployment with one replica of a pod.
pub(crate) fn deployment(name: &str, pod: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": { "replicas": 1, "selector": { "matchLabels": pod["metadata"]["labels"] }, "template": pod },
    })
}

/// Gives the pod a name, so that it can be created without a controller.
pub(crate) fn standalone(name: &str, mut pod: Value) -> Value {
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = name.into();
    pod
}

/// Whether an object has the condition Ready.
pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

pub(crate) fn uid(pod: &Value) -> &str {
    pod["metadata"]["uid"].as_str().expect("the API server sets the UID of each object")
}

/// Whether the last run of the pod's validation container has failed.
pub(crate) fn is_broken(pod: &Value) -> bool {
    let containers = pod["status"]["initContainerStatuses"].as_array().into_iter().flatten();
    containers.into_iter().filter(|status| status["name"] == container::VALIDATION).any(|validation| {
        let ended = ["state", "lastState"].map(|state| &validation[state]["terminated"]["exitCode"]);
        ended.into_iter().find(|code| !code.is_null()).is_some_and(|code| *code == EXIT_VALIDATION)
    })
}
