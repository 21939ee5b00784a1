//! The measured pods in three forms: as the API server returns them, as the agent returns them, and as the runtime
//! passes them to the plugin.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;
use contract::{annotation, container, proxy_env};
use podfacts::PodFacts;
use serde_json::{Value, json};

use crate::case::Case;
use crate::netns::PodNetns;
use crate::run::Step;

const NAMESPACE: &str = "shop";
pub(crate) const UID: &str = "f9e3c3a2-5a1e-4c55-9b0e-0c0f3a1f7f10";

pub(crate) fn name(case: Case) -> &'static str {
    match case {
        Case::DualDns => "web-7d4b9c6f5d-x2x9k",
        Case::V4 => "web-7d4b9c6f5d-m4kzq",
    }
}

/// Returns an injected pod as the API server returns it.
pub(crate) fn object(case: Case) -> Value {
    let mut env = vec![json!({"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})];
    if case.dual_stack() {
        env.push(json!({"name": proxy_env::DNS_CAPTURE, "value": "true"}));
        env.push(json!({"name": proxy_env::DUAL_STACK, "value": "true"}));
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": NAMESPACE, "name": name(case), "uid": UID,
            "labels": {"app": "web", "pod-template-hash": "7d4b9c6f5d"},
            "annotations": annotations(),
        },
        "status": {"phase": "Pending"},
        "spec": {
            "nodeName": "n1",
            "initContainers": [{"name": container::VALIDATION, "image": "proxyv2"}],
            "containers": [
                {"name": "web", "image": "web", "ports": [{"containerPort": 8080}]},
                {
                    "name": container::PROXY, "image": "proxyv2", "args": ["proxy", "sidecar", "--domain", "svc"],
                    "env": env, "securityContext": {"runAsUser": 1337, "runAsGroup": 1337},
                },
            ],
        },
    })
}

fn annotations() -> Value {
    json!({
        annotation::STATUS: r#"{"initContainers":["istio-validation"],"containers":["istio-proxy"],"revision":"default"}"#,
        annotation::INTERCEPTION_MODE: "REDIRECT",
        annotation::INCLUDE_INBOUND_PORTS: "*",
        annotation::EXCLUDE_INBOUND_PORTS: "15090,15021",
        annotation::INCLUDE_OUTBOUND_CIDRS: "*",
        "kubectl.kubernetes.io/default-container": "web",
    })
}

/// Returns the pod's fields that the agent sends to the plugin.
pub(crate) fn facts(case: Case) -> Result<PodFacts> {
    Ok(PodFacts::from_pod_json(object(case).to_string().as_bytes())?)
}

/// Returns a call of the plugin as containerd makes it, with its standard input.
pub(crate) fn call(plugin: &Path, verb: &str, case: Case, run_dir: &Path, netns: &PodNetns) -> Step {
    let sandbox = "3f2a".repeat(16);
    let args = format!(
        "K8S_POD_UID={UID};IgnoreUnknown=1;K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME={};\
         K8S_POD_INFRA_CONTAINER_ID={sandbox}",
        name(case)
    );
    let env: Vec<(String, OsString)> = vec![
        ("CNI_COMMAND".to_owned(), verb.into()),
        ("CNI_CONTAINERID".to_owned(), sandbox.into()),
        ("CNI_NETNS".to_owned(), netns.path().into()),
        ("CNI_IFNAME".to_owned(), "eth0".into()),
        ("CNI_PATH".to_owned(), "/opt/cni/bin".into()),
        ("CNI_ARGS".to_owned(), args.into()),
        ("PATH".to_owned(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()),
    ];
    let stdin = conf(case, run_dir, netns).to_string().into_bytes();
    Step { program: plugin.to_owned(), args: Vec::new(), env: Some(env), stdin }
}

fn conf(case: Case, run_dir: &Path, netns: &PodNetns) -> Value {
    let mut ips = vec![json!({"address": "10.222.0.3/24", "gateway": "10.222.0.1", "interface": 1})];
    if case.dual_stack() {
        ips.push(json!({"address": "fd00:222::3/64", "gateway": "fd00:222::1", "interface": 1}));
    }
    json!({
        "capabilities": {"io.kubernetes.cri.pod-annotations": true},
        "cniVersion": "1.0.0", "name": "k8s-pod-network", "type": "istio-cni",
        "cni_agent_run_dir": run_dir, "plugin_log_level": "info", "ambient_enabled": false,
        "exclude_namespaces": ["kube-system"], "pod_namespace": "istio-system",
        "runtimeConfig": {"io.kubernetes.cri.pod-annotations": annotations()},
        "prevResult": {
            "cniVersion": "1.0.0", "dns": {},
            "interfaces": [
                {"mac": "b6:93:64:63:5a:3f", "name": "veth61264c5e"},
                {"mac": "f2:19:fc:d0:37:99", "name": "eth0", "sandbox": netns.path()},
            ],
            "ips": ips, "routes": [{"dst": "0.0.0.0/0"}],
        },
    })
}
