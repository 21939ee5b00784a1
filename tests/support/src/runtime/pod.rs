//! A pod as the tests describe it once, and what each side is told of it: the runtime, the API server, the agent.

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use istio_cni::contract::{annotation, container};
use istio_cni::pod::{PodFacts, ProxyContainer};
use k8s_cri::v1::{
    Capability, ContainerConfig, ContainerMetadata, ImageSpec, Int64Value, LinuxContainerConfig,
    LinuxContainerSecurityContext, LinuxPodSandboxConfig, PodSandboxConfig, PodSandboxMetadata,
};
use serde_json::{Value, json};

use super::node::IMAGE;

/// Where the application of each pod listens.
pub const APP_PORT: u16 = 8080;
/// What an injector writes once it has injected.
const STATUS: &str = r#"{"initContainers":["istio-validation"],"containers":["istio-proxy"],"revision":"default"}"#;

/// A container of a pod.
#[derive(Debug, Clone)]
pub struct Container {
    /// Its name.
    pub name: &'static str,
    /// What it runs.
    pub command: &'static [&'static str],
    /// `runAsUser`
    pub uid: u32,
    /// `runAsGroup`
    pub gid: u32,
    /// Capabilities beyond the runtime's default.
    pub capabilities: &'static [&'static str],
}

/// The application, which knows nothing of a mesh.
pub const APP: Container =
    Container { name: "app", command: &["/pod_app", "serve", "8080"], uid: 1000, gid: 1000, capabilities: &[] };
/// The sidecar.
pub const PROXY: Container =
    Container { name: container::PROXY, command: &["/pod_proxy"], uid: 1337, gid: 1337, capabilities: &[] };
/// The sidecar as the injector makes it for TPROXY: root, told by its group.
pub const TPROXY: Container = Container { uid: 0, capabilities: &["NET_ADMIN"], ..PROXY };

/// The init container that proves redirection.
pub const VALIDATION: Container = Container {
    name: container::VALIDATION,
    command: &[
        "/istio-iptables",
        "-p",
        "15001",
        "-z",
        "15006",
        "-u",
        "1337",
        "-m",
        "REDIRECT",
        "-i",
        "*",
        "-x",
        "",
        "-b",
        "*",
        "-d",
        "15020",
        "--run-validation",
        "--skip-rule-apply",
    ],
    uid: 1337,
    gid: 1337,
    capabilities: &[],
};

/// A pod.
#[derive(Debug, Clone)]
pub struct Pod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// `metadata.uid`
    pub uid: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Environment of the sidecar: described, not set.
    pub proxy_env: BTreeMap<String, String>,
    /// Names of init containers: described, not run.
    pub init_containers: Vec<&'static str>,
    /// Containers.
    pub containers: Vec<Container>,
}

impl Pod {
    /// A pod that nobody has injected.
    pub fn plain(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: format!("{namespace}-{name}-{}", nanoseconds()),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            proxy_env: BTreeMap::new(),
            init_containers: Vec::new(),
            containers: vec![APP],
        }
    }

    /// A pod as the injector leaves it.
    pub fn injected(namespace: &str, name: &str) -> Self {
        let mut pod = Self::plain(namespace, name)
            .annotated(annotation::STATUS, STATUS)
            .annotated(annotation::INTERCEPTION_MODE, "REDIRECT")
            .annotated(annotation::INCLUDE_OUTBOUND_CIDRS, "*")
            .annotated(annotation::INCLUDE_INBOUND_PORTS, "*")
            .annotated(annotation::EXCLUDE_INBOUND_PORTS, "15020");
        pod.init_containers.push(container::VALIDATION);
        pod.containers.push(PROXY);
        pod
    }

    /// The same in TPROXY mode.
    pub fn injected_for_tproxy(namespace: &str, name: &str) -> Self {
        let mut pod = Self::injected(namespace, name).annotated(annotation::INTERCEPTION_MODE, "TPROXY");
        pod.containers = vec![APP, TPROXY];
        pod
    }

    /// The same with an annotation.
    pub fn annotated(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// The same without an annotation.
    pub fn without_annotation(mut self, key: &str) -> Self {
        self.annotations.remove(key);
        self
    }

    /// The same with a label.
    pub fn labelled(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// The same with a variable in the sidecar's environment.
    pub fn with_proxy_env(mut self, name: &str, value: &str) -> Self {
        self.proxy_env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// The same with an init container in front.
    pub fn with_init_container(mut self, name: &'static str) -> Self {
        self.init_containers.insert(0, name);
        self
    }

    /// The pod as the API server returns it.
    pub fn object(&self) -> Value {
        let env: Vec<Value> =
            self.proxy_env.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
        let container = |c: &Container| {
            let mut object = json!({
                "name": c.name, "image": IMAGE, "securityContext": { "runAsUser": c.uid, "runAsGroup": c.gid },
            });
            if c.name == container::PROXY {
                object["args"] = json!(["proxy", "sidecar"]);
                object["env"] = json!(env);
            }
            object
        };
        let containers: Vec<Value> = self.containers.iter().map(container).collect();
        let init: Vec<Value> =
            self.init_containers.iter().map(|name| json!({ "name": name, "image": IMAGE })).collect();
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": self.namespace, "name": self.name, "uid": self.uid,
                "labels": self.labels, "annotations": self.annotations,
            },
            "spec": { "initContainers": init, "containers": containers },
        })
    }

    /// What the agent makes of it.
    pub fn facts(&self) -> PodFacts {
        let proxy = self.containers.iter().find(|c| c.name == container::PROXY).map(|proxy| ProxyContainer {
            env: self.proxy_env.clone(),
            proxy_type: Some("sidecar".to_owned()),
            run_as_user: Some(proxy.uid),
            run_as_group: Some(proxy.gid),
        });
        PodFacts {
            uid: self.uid.clone(),
            annotations: self.annotations.clone(),
            inject_label: self.labels.get(annotation::INJECT).cloned(),
            has_init: self.init_containers.contains(&container::INIT),
            proxy,
        }
    }

    /// What a kubelet hands to the runtime; logs go below `logs`.
    pub fn sandbox_config(&self, cgroup: &str, logs: &str) -> PodSandboxConfig {
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: self.name.clone(),
                namespace: self.namespace.clone(),
                uid: self.uid.clone(),
                attempt: 0,
            }),
            hostname: self.name.clone(),
            log_directory: format!("{logs}/{}_{}_{}", self.namespace, self.name, self.uid),
            labels: map(&self.labels),
            annotations: map(&self.annotations),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: format!("/{cgroup}/{}", self.uid),
                ..LinuxPodSandboxConfig::default()
            }),
            ..PodSandboxConfig::default()
        }
    }
}

impl Container {
    /// What a kubelet hands to the runtime.
    pub fn config(&self) -> ContainerConfig {
        let id = |value: u32| Some(Int64Value { value: value.into() });
        let add = self.capabilities.iter().map(|name| (*name).to_owned()).collect();
        ContainerConfig {
            metadata: Some(ContainerMetadata { name: self.name.to_owned(), attempt: 0 }),
            image: Some(ImageSpec { image: IMAGE.to_owned(), ..ImageSpec::default() }),
            command: self.command.iter().map(|word| (*word).to_owned()).collect(),
            log_path: self.log_name(),
            linux: Some(LinuxContainerConfig {
                security_context: Some(LinuxContainerSecurityContext {
                    run_as_user: id(self.uid),
                    run_as_group: id(self.gid),
                    capabilities: Some(Capability { add_capabilities: add, ..Capability::default() }),
                    ..LinuxContainerSecurityContext::default()
                }),
                ..LinuxContainerConfig::default()
            }),
            ..ContainerConfig::default()
        }
    }

    /// Its log file, in the pod's log directory.
    pub fn log_name(&self) -> String {
        format!("{}.log", self.name)
    }
}

fn map(from: &BTreeMap<String, String>) -> HashMap<String, String> {
    from.clone().into_iter().collect()
}

fn nanoseconds() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}
