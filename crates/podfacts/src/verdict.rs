//! Decides which pods are redirected, with a reason for each pod that is skipped.
//!
//! Pure. [`of_pod`] decides by the pod's [`PodFacts`], [`of_name`] by the pod's name and the chain entry's settings. Logs,
//! metrics and tests use the same name of a reason.

use std::fmt;

use contract::{annotation, proxy_env};
use redirect::Redirect;
use redirect::annotations::{self, Interception};

use crate::{PodFacts, PodName};

/// The decision about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Redirect {
        redirect: Box<Redirect>,
        /// Values of the pod that were ignored instead of refused, for the log.
        warnings: Vec<redirect::Error>,
    },
    Skip(SkipReason),
}

/// Why a pod is not redirected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SkipReason {
    /// `CNI_ARGS` names no pod.
    NotKubernetes,
    /// The pod is the agent's own, which must start even without a running agent.
    AgentPod,
    /// The configuration excludes the pod's namespace.
    ExcludedNamespace,
    /// The pod has an `istio-init` container, which programs the rules itself.
    HasIstioInit,
    /// The pod's proxy runs without Envoy (`DISABLE_ENVOY`).
    EnvoyDisabled,
    /// The pod has no `istio-proxy` container.
    NoProxy,
    /// The pod's proxy is a gateway or a waypoint.
    NotSidecar,
    /// The pod's label or annotation `sidecar.istio.io/inject` is false.
    InjectDeclined,
    /// The pod was not injected: it has no annotation `sidecar.istio.io/status`.
    NoSidecarStatus,
    /// The pod's interception mode is `NONE`.
    InterceptionNone,
}

impl SkipReason {
    /// Returns the reason's name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotKubernetes => "not_kubernetes",
            Self::AgentPod => "agent_pod",
            Self::ExcludedNamespace => "excluded_namespace",
            Self::HasIstioInit => "has_istio_init",
            Self::EnvoyDisabled => "envoy_disabled",
            Self::NoProxy => "no_proxy",
            Self::NotSidecar => "not_sidecar",
            Self::InjectDeclined => "inject_declined",
            Self::NoSidecarStatus => "no_sidecar_status",
            Self::InterceptionNone => "interception_none",
        }
    }
}

impl SkipReason {
    pub const ALL: [Self; 10] = [
        Self::NotKubernetes,
        Self::AgentPod,
        Self::ExcludedNamespace,
        Self::HasIstioInit,
        Self::EnvoyDisabled,
        Self::NoProxy,
        Self::NotSidecar,
        Self::InjectDeclined,
        Self::NoSidecarStatus,
        Self::InterceptionNone,
    ];

    /// Returns the reason as a clause about the pod.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::NotKubernetes => "the runtime names no pod",
            Self::AgentPod => "it is the agent's own pod",
            Self::ExcludedNamespace => "the configuration excludes its namespace",
            Self::HasIstioInit => "its container istio-init programs the rules",
            Self::EnvoyDisabled => "its proxy runs without Envoy",
            Self::NoProxy => "it has no container istio-proxy",
            Self::NotSidecar => "its proxy is a gateway or a waypoint",
            Self::InjectDeclined => "it declines injection",
            Self::NoSidecarStatus => "it was not injected",
            Self::InterceptionNone => "its interception mode is NONE",
        }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Returns why a pod is skipped according to its name and two settings of the chain entry; `None` if neither excludes it.
pub fn of_name(pod: &PodName, agent_namespace: Option<&str>, exclude_namespaces: &[String]) -> Option<SkipReason> {
    if agent_namespace == Some(pod.namespace.as_str()) && pod.name.starts_with(contract::AGENT_POD_PREFIX) {
        return Some(SkipReason::AgentPod);
    }
    exclude_namespaces.contains(&pod.namespace).then_some(SkipReason::ExcludedNamespace)
}

/// Returns why an ADD with these settings of the chain entry skips a pod; `None` if the ADD redirects or refuses the pod.
pub fn skipped(
    pod: &PodName,
    facts: &PodFacts,
    agent_namespace: Option<&str>,
    exclude_namespaces: &[String],
) -> Option<SkipReason> {
    of_name(pod, agent_namespace, exclude_namespaces).or_else(|| match of_pod(facts) {
        Ok(Verdict::Skip(reason)) => Some(reason),
        Ok(Verdict::Redirect { .. }) | Err(_) => None,
    })
}

/// Decides about a pod from its [`PodFacts`]. An error names the invalid annotation.
pub fn of_pod(facts: &PodFacts) -> Result<Verdict, redirect::Error> {
    if let Some(reason) = skip_reason(facts) {
        return Ok(Verdict::Skip(reason));
    }
    Ok(match annotations::from_pod(facts.settings())? {
        Interception::None => Verdict::Skip(SkipReason::InterceptionNone),
        Interception::Redirect { redirect, warnings } => Verdict::Redirect { redirect, warnings },
    })
}

fn skip_reason(facts: &PodFacts) -> Option<SkipReason> {
    if facts.has_init {
        return Some(SkipReason::HasIstioInit);
    }
    let Some(proxy) = &facts.proxy else { return Some(SkipReason::NoProxy) };
    if proxy.env.get(proxy_env::DISABLE_ENVOY).and_then(|v| gocompat::parse_bool(v)) == Some(true) {
        return Some(SkipReason::EnvoyDisabled);
    }
    if proxy.proxy_type.as_deref().is_some_and(|kind| !kind.is_empty() && kind != "sidecar") {
        return Some(SkipReason::NotSidecar);
    }
    let inject = facts.inject_label.as_ref().or_else(|| facts.annotations.get(annotation::INJECT));
    if inject.and_then(|v| gocompat::parse_bool(v)) == Some(false) {
        return Some(SkipReason::InjectDeclined);
    }
    (!facts.annotations.contains_key(annotation::STATUS)).then_some(SkipReason::NoSidecarStatus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProxyContainer;

    #[test]
    fn an_add_skips_a_pod_by_its_name_or_its_facts() {
        let name = |namespace: &str, name: &str| PodName { namespace: namespace.into(), name: name.into() };
        let injected = pod(|_, _| ());
        let decided = |pod: &PodName, facts| skipped(pod, facts, Some("mesh"), &["legacy".to_owned()]);
        assert_eq!(decided(&name("shop", "web"), &injected), None);
        assert_eq!(decided(&name("legacy", "web"), &injected), Some(SkipReason::ExcludedNamespace));
        assert_eq!(decided(&name("mesh", "istio-cni-node-x"), &injected), Some(SkipReason::AgentPod));
        assert_eq!(decided(&name("shop", "web"), &PodFacts::default()), Some(SkipReason::NoProxy));
    }

    /// Returns an injected pod with this change.
    fn pod(change: impl Fn(&mut PodFacts, &mut ProxyContainer)) -> PodFacts {
        let mut facts = PodFacts::default();
        let mut proxy = ProxyContainer { proxy_type: Some("sidecar".into()), ..ProxyContainer::default() };
        facts.annotations.insert(annotation::STATUS.into(), "{}".into());
        change(&mut facts, &mut proxy);
        facts.proxy = Some(proxy);
        facts
    }

    fn reason(facts: &PodFacts) -> Option<SkipReason> {
        match of_pod(facts).unwrap() {
            Verdict::Skip(reason) => Some(reason),
            Verdict::Redirect { .. } => None,
        }
    }

    #[test]
    fn an_injected_pod_is_redirected() {
        assert_eq!(reason(&pod(|_, _| ())), None);
        assert_eq!(reason(&pod(|_, proxy| proxy.proxy_type = None)), None, "no arguments, no type");
    }

    #[test]
    fn each_skip_reason() {
        let inject = |label: Option<&'static str>, annotated: Option<&'static str>| {
            pod(move |facts, _| {
                facts.inject_label = label.map(Into::into);
                facts.annotations.extend(annotated.map(|value| (annotation::INJECT.into(), value.into())));
            })
        };
        let env = |value: &'static str| {
            pod(move |_, proxy| drop(proxy.env.insert(proxy_env::DISABLE_ENVOY.into(), value.into())))
        };
        for (facts, expected) in [
            (pod(|facts, _| facts.has_init = true), Some(SkipReason::HasIstioInit)),
            (PodFacts { proxy: None, ..pod(|_, _| ()) }, Some(SkipReason::NoProxy)),
            (pod(|_, proxy| proxy.proxy_type = Some("router".into())), Some(SkipReason::NotSidecar)),
            (pod(|_, proxy| proxy.proxy_type = Some("waypoint".into())), Some(SkipReason::NotSidecar)),
            (env("True"), Some(SkipReason::EnvoyDisabled)),
            (env("yes"), None),
            (inject(None, Some("false")), Some(SkipReason::InjectDeclined)),
            (inject(Some("false"), Some("true")), Some(SkipReason::InjectDeclined)),
            (inject(Some("true"), Some("false")), None),
            (inject(None, Some("enabled")), None),
            (pod(|facts, _| facts.annotations.clear()), Some(SkipReason::NoSidecarStatus)),
            (
                pod(|facts, _| drop(facts.annotations.insert(annotation::INTERCEPTION_MODE.into(), "NONE".into()))),
                Some(SkipReason::InterceptionNone),
            ),
        ] {
            assert_eq!(reason(&facts), expected, "{facts:?}");
        }
    }

    #[test]
    fn an_invalid_value_is_an_error() {
        let facts = pod(|facts, _| {
            facts.annotations.insert(annotation::INCLUDE_INBOUND_PORTS.into(), "80;443".into());
        });
        let error = of_pod(&facts).unwrap_err();
        assert_eq!((error.key.as_str(), error.value.as_str()), (annotation::INCLUDE_INBOUND_PORTS, "80;443"));
    }
}
