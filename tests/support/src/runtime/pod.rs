//! The description of a pod, and its forms for the runtime, the API server and the agent.

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use contract::{annotation, container};
use k8s_cri::v1::{
    Capability, ContainerConfig, ContainerMetadata, ImageSpec, Int64Value, LinuxContainerConfig,
    LinuxContainerSecurityContext, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, NamespaceMode, NamespaceOption,
    PodSandboxConfig, PodSandboxMetadata,
};
use podfacts::{PodFacts, ProxyContainer};
use serde_json::{Value, json};

use super::node::IMAGE;

/// The port of each pod's application.
pub const APP_PORT: u16 = 8080;
/// The value of the status annotation that an injector writes.
const STATUS: &str = r#"{"initContainers":["istio-validation"],"containers":["istio-proxy"],"revision":"default"}"#;

/// A container of a pod.
#[derive(Debug, Clone)]
pub struct Container {
    pub name: &'static str,
    /// The command line.
    pub command: &'static [&'static str],
    /// The user, `runAsUser`.
    pub uid: u32,
    /// The group, `runAsGroup`.
    pub gid: u32,
    /// Capabilities in addition to the runtime's default.
    pub capabilities: &'static [&'static str],
}

/// The application container.
pub const APP: Container =
    Container { name: "app", command: &["/pod_app", "serve", "8080"], uid: 1000, gid: 1000, capabilities: &[] };
/// The sidecar container.
pub const PROXY: Container =
    Container { name: container::PROXY, command: &["/pod_proxy"], uid: 1337, gid: 1337, capabilities: &[] };
/// The sidecar container as the injector adds it for TPROXY: it runs as root, so the rules recognize it by its group.
pub const TPROXY: Container = Container { uid: 0, capabilities: &["NET_ADMIN"], ..PROXY };

/// The init container that validates redirection.
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

/// The description of a pod.
#[derive(Debug, Clone)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    /// The pod's UID, `metadata.uid`.
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// The sidecar's environment in the API server's object. The container that runs does not have these variables.
    pub proxy_env: BTreeMap<String, String>,
    /// The names of the init containers in the API server's object. The test node does not run these containers.
    pub init_containers: Vec<&'static str>,
    pub containers: Vec<Container>,
    /// The runtime class and its handler.
    pub class: Option<(&'static str, &'static str)>,
}

impl Pod {
    /// Returns a pod without a sidecar.
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
            class: None,
        }
    }

    /// Returns a pod with the annotations and containers that the injector adds.
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

    /// Returns an injected pod in TPROXY mode.
    pub fn injected_for_tproxy(namespace: &str, name: &str) -> Self {
        let mut pod = Self::injected(namespace, name).annotated(annotation::INTERCEPTION_MODE, "TPROXY");
        pod.containers = vec![APP, TPROXY];
        pod
    }

    /// Sets an annotation.
    pub fn annotated(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Removes an annotation.
    pub fn without_annotation(mut self, key: &str) -> Self {
        self.annotations.remove(key);
        self
    }

    /// Sets a label.
    pub fn labelled(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Sets a variable in the sidecar's environment.
    pub fn with_proxy_env(mut self, name: &str, value: &str) -> Self {
        self.proxy_env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Adds an init container before the others.
    pub fn with_init_container(mut self, name: &'static str) -> Self {
        self.init_containers.insert(0, name);
        self
    }

    /// Sets the runtime class and its handler.
    pub fn in_class(mut self, class: &'static str, handler: &'static str) -> Self {
        self.class = Some((class, handler));
        self
    }

    /// Returns the pod as the API server's object.
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
            "spec": {
                "initContainers": init, "containers": containers, "runtimeClassName": self.class.map(|(class, _)| class),
            },
        })
    }

    /// Returns the pod's fields that the agent sends to the plugin.
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
            runtime_class: self.class.map(|(class, _)| class.to_owned()),
            handler: None,
            unknown_handler: None,
            untrusted: false,
            proxy,
        }
    }

    /// Returns the sandbox configuration that a kubelet passes to the runtime, with log files below `logs`.
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
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(namespaces()),
                    ..LinuxSandboxSecurityContext::default()
                }),
                ..LinuxPodSandboxConfig::default()
            }),
            ..PodSandboxConfig::default()
        }
    }
}

impl Container {
    /// Returns the container configuration that a kubelet passes to the runtime.
    pub fn config(&self) -> ContainerConfig {
        let id = |value: u32| Some(Int64Value { value: value.into() });
        let add = self.capabilities.iter().map(|name| (*name).to_owned()).collect();
        ContainerConfig {
            metadata: Some(ContainerMetadata { name: self.name.to_owned(), attempt: 0 }),
            image: Some(ImageSpec {
                image: IMAGE.to_owned(),
                user_specified_image: IMAGE.to_owned(),
                ..ImageSpec::default()
            }),
            command: self.command.iter().map(|word| (*word).to_owned()).collect(),
            log_path: self.log_name(),
            linux: Some(LinuxContainerConfig {
                security_context: Some(LinuxContainerSecurityContext {
                    run_as_user: id(self.uid),
                    run_as_group: id(self.gid),
                    namespace_options: Some(namespaces()),
                    capabilities: Some(Capability { add_capabilities: add, ..Capability::default() }),
                    ..LinuxContainerSecurityContext::default()
                }),
                ..LinuxContainerConfig::default()
            }),
            ..ContainerConfig::default()
        }
    }

    /// Returns the name of the log file in the pod's log directory.
    pub fn log_name(&self) -> String {
        format!("{}.log", self.name)
    }
}

/// Returns the kubelet's default namespace options for a pod: each container has its own PID namespace.
fn namespaces() -> NamespaceOption {
    NamespaceOption { pid: NamespaceMode::Container.into(), ..NamespaceOption::default() }
}

fn map(from: &BTreeMap<String, String>) -> HashMap<String, String> {
    from.clone().into_iter().collect()
}

fn nanoseconds() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}
