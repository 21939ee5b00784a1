//! The fields of a pod that determine its redirection.
//!
//! The agent sends them as JSON (camelCase) over its socket; the API fallback extracts them from a complete Pod.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodName {
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The fields of a pod that determine its redirection.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodFacts {
    /// `metadata.uid`
    pub uid: String,
    /// The annotations of `contract::annotation` that the pod has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The label `sidecar.istio.io/inject`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inject_label: Option<String>,
    /// The pod has an `istio-init` container of any kind.
    #[serde(default)]
    pub has_init: bool,
    /// `spec.runtimeClassName`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_class: Option<String>,
    /// The `istio-proxy` container, among the containers or the init containers (native sidecar).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyContainer>,
}

/// The words in handlers and names of runtime classes by which a sandbox is known; digits may follow.
const SANDBOXES: [&str; 4] = ["gvisor", "runsc", "kata", "katacontainers"];

/// Whether a runtime class is that of a sandbox with a kernel or a network stack of its own, gVisor or Kata Containers,
/// which rules of the node's kernel do not reach. A word decides: of the handler in the RuntimeClass, or of the name of the
/// class where the RuntimeClass is not known.
pub fn is_sandbox(handler_or_class: &str) -> bool {
    let text = handler_or_class.to_ascii_lowercase();
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| SANDBOXES.contains(&word.trim_end_matches(|c: char| c.is_ascii_digit())))
}

/// The fields of the `istio-proxy` container that determine the rules.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyContainer {
    /// The variables of `contract::proxy_env` that have a literal value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// `args[1]` where `args[0]` is `proxy`: `sidecar`, `router`, `waypoint`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_type: Option<String>,
    /// `securityContext.runAsUser` of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<u32>,
    /// `securityContext.runAsGroup` of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_group: Option<u32>,
}
