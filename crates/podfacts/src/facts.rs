//! The fields of a pod that determine its redirection.
//!
//! The agent sends them as JSON (camelCase) over its socket; the API fallback extracts them from a complete Pod.

use std::collections::BTreeMap;
use std::fmt;

use redirect::PodSettings;
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
    /// The pod's annotations that are in [`ANNOTATIONS`](crate::ANNOTATIONS).
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
    /// The pod has containerd's annotation `io.kubernetes.cri.untrusted-workload`, which selects the handler `untrusted`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
    /// The pod's runtime handler, if the agent knows it; the API fallback does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<RuntimeHandler>,
    /// Why the agent does not know the handler yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_handler: Option<String>,
    /// The `istio-proxy` container, among the containers or the init containers (native sidecar).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyContainer>,
}

/// The runtime handler of a RuntimeClass, or of pods without one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeHandler {
    pub name: String,
    /// Whether it is a sandboxed runtime, whose pods the rules of the node's kernel do not reach.
    pub is_sandbox: bool,
    /// The value in the runtime's configuration that shows a sandboxed runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

impl PodFacts {
    /// Returns the fields that determine the rules.
    pub fn settings(&self) -> PodSettings<'_> {
        let proxy = self.proxy.as_ref();
        PodSettings {
            annotations: &self.annotations,
            env: proxy.map(|proxy| &proxy.env),
            run_as_user: proxy.and_then(|proxy| proxy.run_as_user),
            run_as_group: proxy.and_then(|proxy| proxy.run_as_group),
        }
    }

    /// Describes the pod's sandboxed runtime; `None` if rules of the node's kernel reach the pod. If the handler is not known,
    /// the name of the runtime class decides.
    pub fn sandbox(&self) -> Option<String> {
        match (&self.handler, &self.runtime_class) {
            (Some(handler), _) => handler.is_sandbox.then(|| handler.to_string()),
            (None, Some(class)) => is_sandbox(class).then(|| format!("runtime class {class}")),
            (None, None) => None,
        }
    }

    /// Returns why it is not known whether the pod has a sandboxed runtime; `None` if it is known, or if the pod selects no
    /// handler.
    pub fn unknown_handler(&self) -> Option<String> {
        let of = match (&self.handler, &self.runtime_class) {
            (Some(_), _) => None,
            (None, Some(class)) => Some(format!("runtime class {class}")),
            (None, None) => self.untrusted.then(|| "an untrusted workload".to_owned()),
        };
        let of_agent = |of| format!("only the node's agent knows the handler of {of}, and it has not answered");
        self.unknown_handler.clone().or_else(|| of.map(of_agent))
    }
}

impl fmt::Display for RuntimeHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "runtime handler {}", self.name)?;
        self.program.iter().try_for_each(|program| write!(f, " ({program})"))
    }
}

/// The words in programs, handlers and names of runtime classes that identify a sandboxed runtime; digits may follow.
const SANDBOXES: [&str; 5] = ["gvisor", "runsc", "kata", "katacontainers", "firecracker"];

/// Whether a name identifies a sandboxed runtime, such as gVisor or Kata Containers. Its pods have a kernel or a network stack
/// of their own, which rules of the node's kernel do not reach. The name is the runtime's program; if that is not known, the
/// RuntimeClass's handler, or else its name.
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
    /// `args[1]` if `args[0]` is `proxy`: `sidecar`, `router`, `waypoint`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_type: Option<String>,
    /// `securityContext.runAsUser` of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<u32>,
    /// `securityContext.runAsGroup` of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_group: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handler_decides_whether_a_pod_is_sandboxed_before_the_class() {
        let handler = |name: &str, is_sandbox, program: Option<&str>| {
            Some(RuntimeHandler { name: name.into(), is_sandbox, program: program.map(Into::into) })
        };
        for (class, handler, expected) in [
            (None, None, None),
            (Some("kata"), None, Some("runtime class kata")),
            (Some("nvidia"), None, None),
            (Some("kata"), handler("runc", false, None), None),
            (Some("secure"), handler("runsc", true, None), Some("runtime handler runsc")),
            (
                None,
                handler("k", true, Some("io.containerd.kata.v2")),
                Some("runtime handler k (io.containerd.kata.v2)"),
            ),
        ] {
            let facts = PodFacts { runtime_class: class.map(Into::into), handler, ..PodFacts::default() };
            assert_eq!(facts.sandbox().as_deref(), expected, "{facts:?}");
        }
    }

    #[test]
    fn the_handler_of_a_class_is_not_known_without_the_agent() {
        let runc = Some(RuntimeHandler { name: "runc".into(), is_sandbox: false, program: None });
        let of_class = Some("only the node's agent knows the handler of runtime class c, and it has not answered");
        for (class, handler, unknown, expected) in [
            (None, None, None, None),
            (None, None, Some("reason"), Some("reason")),
            (Some("c"), None, None, of_class),
            (Some("c"), None, Some("reason"), Some("reason")),
            (Some("c"), runc, None, None),
        ] {
            let (runtime_class, unknown_handler) = (class.map(Into::into), unknown.map(Into::into));
            let facts = PodFacts { runtime_class, handler, unknown_handler, ..PodFacts::default() };
            assert_eq!(facts.unknown_handler().as_deref(), expected, "{facts:?}");
        }
    }
}
