//! The subject of an injection: a pod with the data of one review or document.

use std::collections::BTreeMap;

use contract::port;
use serde_json::{Map, Value};

use super::early::Context;
use super::owner::Owner;
use super::proxy;
use crate::pod;

/// A pod, with the data for its injection that is not in the configuration.
#[derive(Debug, Clone)]
pub(super) struct Subject<'a> {
    /// The pod before the injection.
    pub(super) pod: &'a Value,
    /// The pod's namespace; empty for a document without one.
    pub(super) namespace: &'a str,
    pub(super) owner: Owner,
    /// The pod's proxy configuration, in protobuf's JSON.
    pub(super) proxy_config: Value,
    /// Names of the templates or aliases that apply if the pod's annotation names none.
    pub(super) templates: &'a [String],
    /// Lists of templates by alias.
    pub(super) aliases: &'a BTreeMap<String, Vec<String>>,
    /// Environment variables of the sidecar.
    pub(super) env: BTreeMap<String, String>,
    /// Whether the sidecar is native, unless the pod's annotation decides.
    pub(super) native: bool,
    /// User and group of the sidecar, if the platform assigns them.
    pub(super) ids: (Option<i64>, Option<i64>),
    /// Whether the pod's runtime class is a sandboxed runtime; `None`: the name of the class decides.
    pub(super) sandbox: Option<bool>,
    /// Names of the volumes that the pod's controller adds to it: the claim templates of a StatefulSet.
    pub(super) claims: &'a [String],
    /// Annotations that each injected pod gets.
    pub(super) annotations: Option<&'a Map<String, Value>>,
    /// The digest of the configuration; `None` for a document, whose output must equal that of Istio's `kube-inject`.
    pub(super) digest: Option<&'a str>,
}

impl<'a> Subject<'a> {
    /// Returns a subject without templates, environment and IDs.
    pub(super) fn plain(pod: &'a Value, owner: Owner, proxy_config: Value) -> Self {
        static NO_ALIASES: BTreeMap<String, Vec<String>> = BTreeMap::new();
        Self {
            pod,
            namespace: pod::text(pod::metadata(pod), "namespace"),
            owner,
            proxy_config,
            templates: &[],
            aliases: &NO_ALIASES,
            env: BTreeMap::new(),
            native: false,
            ids: (None, None),
            sandbox: None,
            claims: &[],
            annotations: None,
            digest: None,
        }
    }

    /// Returns the status port of the pod's proxy configuration, on which the agent listens unless the pod's annotation
    /// names another.
    pub(super) fn status_port(&self) -> u16 {
        proxy::number(&self.proxy_config, "statusPort", port::STATUS)
    }

    /// Returns the settings that decide about the pod's handlers.
    pub(super) fn context(&self) -> Context {
        Context::of(Some(&self.proxy_config), self.sandbox)
    }
}
