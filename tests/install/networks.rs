//! Network configurations for tests: a list like Calico's, a single plugin like minikube's, and files that no runtime
//! loads. Also the expected configurations with Istio's entry.

use serde_json::{Value, json};

/// A configuration list with unusual number formats and key order.
pub(crate) const CALICO: &str = r#"{
  "name": "pod-network",
  "cniVersion": "0.3.1",
  "plugins": [
    {
      "type": "calico",
      "datastore_type": "kubernetes",
      "nodename": "worker-1",
      "mtu": 1.44e3,
      "ipam": { "type": "calico-ipam", "assign_ipv4": "true" },
      "policy": { "type": "k8s" },
      "kubernetes": { "kubeconfig": "/etc/cni/net.d/calico-kubeconfig" }
    },
    { "type": "portmap", "snat": true, "capabilities": { "portMappings": true } },
    {"type": "bandwidth", "capabilities": {"bandwidth": true}}
  ]
}
"#;

/// The configuration of a single plugin, which is not in a list.
pub(crate) const MINIKUBE: &str = r#"{
  "cniVersion": "0.3.0",
  "name": "minikube-bridge",
  "type": "bridge",
  "bridge": "mini0",
  "isGateway": true,
  "ipMasq": true,
  "ipam": { "type": "host-local", "subnet": "10.88.0.0/16", "routes": [{ "dst": "0.0.0.0/0" }] }
}
"#;

/// Invalid JSON with a valid beginning.
pub(crate) const NOT_JSON: &str = "\"a text\"\n\nand another one\n";
/// The configuration of a single plugin without a type.
pub(crate) const TYPELESS: &str = r#"{"cniVersion": "0.3.0", "name": "minikube-bridge", "bridge": "mini0"}"#;
/// A configuration list without a name.
pub(crate) const NAMELESS: &str = r#"{"cniVersion": "0.3.1", "plugins": [{"type": "calico"}]}"#;
/// A configuration list whose key `plugins` is misspelt.
pub(crate) const MISSPELT: &str = r#"{"cniVersion": "0.3.1", "name": "pod-network", "pugins": [{"type": "calico"}]}"#;

pub(crate) fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Returns Istio's chain entry, for the settings of [`super::node::Node`].
pub(crate) fn entry() -> Value {
    json!({
        "name": "istio-cni", "type": "istio-cni", "ipam": {}, "dns": {},
        "plugin_log_level": "debug", "cni_agent_run_dir": "/path/to/kubeconfig",
        "ambient_enabled": false, "enablement_selectors": [], "exclude_namespaces": null, "pod_namespace": "my-namespace",
        "native_nftables": false, "enable_ambient_detection_retry": false,
        "capabilities": { "io.kubernetes.cri.pod-annotations": true },
    })
}

/// Returns the configuration of the plugin alone, without a list.
pub(crate) fn alone() -> Value {
    let mut alone = entry();
    alone["cniVersion"] = json!("0.3.1");
    alone
}

/// Returns `list` with Istio's chain entry appended.
pub(crate) fn chained(list: &Value) -> Value {
    let mut list = list.clone();
    list["plugins"].as_array_mut().unwrap().push(entry());
    list
}

/// Returns the list to which the installer converts the configuration of a single plugin.
pub(crate) fn listed(single: &str) -> Value {
    let mut plugin = value(single);
    let version = plugin.as_object_mut().unwrap().remove("cniVersion").unwrap();
    json!({ "cniVersion": version, "name": plugin["name"], "plugins": [plugin] })
}
