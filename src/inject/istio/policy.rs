//! Whether a pod gets a sidecar, and by which rule: the rules of each era of Istio's.
//!
//! Pure; the reason is the log field, the metric label and what `explain` prints.

use std::fmt;

use serde_json::Value;

use crate::contract::annotation;
use crate::inject::pod;
use crate::inject::selector::Selector;

/// Releases of Istio that decide alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Era {
    /// 0.8 to 1.0: no selectors.
    V0_8,
    /// 1.1 to 1.8: selectors; the annotation alone is asked.
    V1_1,
    /// 1.9 to 1.11: four namespaces are ignored.
    V1_9,
    /// 1.12 to 1.26: the label is asked before the annotation.
    V1_12,
    /// Since 1.27: only `true` and `false` mean something.
    V1_27,
}

/// What happens to pods about which nothing else is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Default {
    /// They get a sidecar.
    Enabled,
    /// They get none.
    Disabled,
    /// A word that Istio does not know: no pod gets a sidecar, whatever it asks for.
    Invalid(String),
}

/// The configured part of the decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Whose rules hold.
    pub era: Era,
    /// What happens to pods about which nothing else is said.
    pub default: Default,
    /// Pods that get none unless they ask for it themselves.
    pub never: Vec<Selector>,
    /// Pods that get one unless they decline or `never` selects them.
    pub always: Vec<Selector>,
}

/// Where a pod says whether it wants a sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The label `sidecar.istio.io/inject`.
    Label,
    /// The annotation of the same name.
    Annotation,
}

/// The rule that decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Redirection would be the node's.
    HostNetwork,
    /// Namespaces of the system.
    IgnoredNamespace(String),
    /// The policy is a word that does not exist.
    InvalidPolicy(String),
    /// The pod says so.
    Asked(Place, String),
    /// The first `neverInjectSelector` that matches, counted from 0.
    Never(usize),
    /// The first `alwaysInjectSelector` that matches, counted from 0.
    Always(usize),
    /// Nothing else is said.
    Policy,
    /// The pod of a document has its sidecar already.
    Injected,
}

/// A decision, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether the pod gets a sidecar.
    pub inject: bool,
    /// The rule.
    pub reason: Reason,
    /// What whoever made the pod should hear.
    pub remark: Option<Remark>,
}

/// What is worth a warning about a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remark {
    /// What the pod says is neither yes nor no, and was passed over.
    Unrecognised(String),
    /// The pod asks for a sidecar, and cannot have one.
    Overruled,
}

impl Policy {
    /// Decides about a pod in `namespace`.
    pub fn decide(&self, pod: &Value, namespace: &str) -> Decision {
        let decide = |inject, reason| Decision { inject, reason, remark: None };
        let asked = self.era.asked(pod);
        if let Some(reason) = self.forbids(pod, namespace) {
            let remark = matches!(asked, Asked::Yes(..)).then_some(Remark::Overruled);
            return Decision { remark, ..decide(false, reason) };
        }
        match asked {
            Asked::Yes(place, value) => decide(true, Reason::Asked(place, value)),
            Asked::No(place, value) => decide(false, Reason::Asked(place, value)),
            Asked::Nothing => self.undecided(pod),
            Asked::Unrecognised(value) => Decision { remark: Some(Remark::Unrecognised(value)), ..self.undecided(pod) },
        }
    }

    /// Why the pod gets no sidecar, whatever it asks for.
    fn forbids(&self, pod: &Value, namespace: &str) -> Option<Reason> {
        if pod::spec(pod).get("hostNetwork") == Some(&Value::Bool(true)) {
            return Some(Reason::HostNetwork);
        }
        if self.era.ignores(namespace) {
            return Some(Reason::IgnoredNamespace(namespace.to_owned()));
        }
        match &self.default {
            Default::Invalid(word) => Some(Reason::InvalidPolicy(word.clone())),
            Default::Enabled | Default::Disabled => None,
        }
    }

    /// The pod itself says nothing.
    fn undecided(&self, pod: &Value) -> Decision {
        let labels = pod::map(pod::metadata(pod), "labels");
        let first = |selectors: &[Selector]| selectors.iter().position(|selector| selector.matches(labels));
        let selected = (self.era >= Era::V1_1).then(|| {
            let never = first(&self.never).map(|at| (false, Reason::Never(at)));
            never.or_else(|| first(&self.always).map(|at| (true, Reason::Always(at))))
        });
        let (inject, reason) = selected.flatten().unwrap_or((self.default == Default::Enabled, Reason::Policy));
        Decision { inject, reason, remark: None }
    }
}

/// What a pod says about itself.
enum Asked {
    Yes(Place, String),
    No(Place, String),
    Nothing,
    Unrecognised(String),
}

impl Era {
    fn ignores(self, namespace: &str) -> bool {
        match namespace {
            "kube-system" | "kube-public" => true,
            "kube-node-lease" | "local-path-storage" => self >= Self::V1_9,
            _ => false,
        }
    }

    fn asked(self, pod: &Value) -> Asked {
        let label = (self >= Self::V1_12).then(|| pod::label(pod, annotation::INJECT)).flatten();
        let (place, value) = match (label, pod::annotation(pod, annotation::INJECT)) {
            (Some(value), _) => (Place::Label, value),
            (None, Some(value)) => (Place::Annotation, value),
            (None, None) => return Asked::Nothing,
        };
        let owned = value.to_owned();
        if value.is_empty() {
            return Asked::Nothing;
        }
        if self >= Self::V1_27 {
            return match value {
                "true" => Asked::Yes(place, owned),
                "false" => Asked::No(place, owned),
                _ => Asked::Unrecognised(owned),
            };
        }
        match value.to_lowercase().as_str() {
            "y" | "yes" | "true" | "on" => Asked::Yes(place, owned),
            _ => Asked::No(place, owned),
        }
    }
}

impl Reason {
    /// The reason as a metric's label and an audit annotation: one word of a fixed set.
    pub fn word(&self) -> &'static str {
        match self {
            Self::HostNetwork => "host_network",
            Self::IgnoredNamespace(_) => "ignored_namespace",
            Self::InvalidPolicy(_) => "invalid_policy",
            Self::Asked(Place::Label, _) => "label",
            Self::Asked(Place::Annotation, _) => "annotation",
            Self::Never(_) => "never_selector",
            Self::Always(_) => "always_selector",
            Self::Policy => "policy",
            Self::Injected => "already",
        }
    }
}

impl Decision {
    /// What becomes of the pod, and why.
    pub fn sentence(&self) -> String {
        format!("{} Istio sidecar, for {}", if self.inject { "an" } else { "no" }, self.reason)
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unrecognised(value) => {
                write!(f, "{} is {value:?}, neither \"true\" nor \"false\", and is passed over", annotation::INJECT)
            }
            Self::Overruled => write!(f, "{} asks for a sidecar in vain", annotation::INJECT),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostNetwork => f.write_str("it uses the host's network"),
            Self::IgnoredNamespace(name) => write!(f, "namespace {name} is the system's"),
            Self::InvalidPolicy(word) => {
                write!(
                    f,
                    "the policy {word:?} is neither \"enabled\" nor \"disabled\"; nothing is injected until it is"
                )
            }
            Self::Asked(Place::Label, value) => write!(f, "its label {} is {value:?}", annotation::INJECT),
            Self::Asked(Place::Annotation, value) => write!(f, "its annotation {} is {value:?}", annotation::INJECT),
            Self::Never(at) => write!(f, "neverInjectSelector {at} matches its labels"),
            Self::Always(at) => write!(f, "alwaysInjectSelector {at} matches its labels"),
            Self::Policy => f.write_str("the policy says so of pods that say nothing"),
            Self::Injected => f.write_str("it has its sidecar already"),
        }
    }
}

#[cfg(test)]
mod tests;
