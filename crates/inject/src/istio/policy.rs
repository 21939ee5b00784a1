//! The injection policy: decides whether a pod gets a sidecar, by the rules of each era of Istio.
//!
//! Decisions depend only on the arguments. The log, metric labels and `explain` report the reason of a decision.

use std::fmt;

use contract::annotation;
use gocompat::parse_bool;
use podfacts::selector::LabelSelector;
use serde_json::Value;

use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// Releases of Istio with the same rules. Each has the rules of the former ones unless it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Era {
    /// 0.8 to 1.0: no selectors.
    V0_8,
    /// 1.1 to 1.8: selectors; only the annotation is read.
    V1_1,
    /// 1.9 to 1.11: four namespaces are ignored.
    V1_9,
    /// 1.12 to 1.26: the label takes precedence over the annotation.
    V1_12,
    /// Since 1.27: values other than `true` and `false` are ignored. Unlike Istio, this injector treats values that Go parses as false as
    /// `false`, because the plugin skips such pods.
    V1_27,
}

/// The decision about pods to which no other rule applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Default {
    Enabled,
    Disabled,
    /// A value other than `enabled` and `disabled`: no pod gets a sidecar, not even on request.
    Invalid(String),
}

/// The rules by which pods get a sidecar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The era whose rules apply.
    pub era: Era,
    /// The decision about pods to which no other rule applies.
    pub default: Default,
    /// Selectors of pods that get no sidecar unless they request one.
    pub never: Vec<LabelSelector>,
    /// Selectors of pods that get a sidecar unless they decline it or `never` selects them.
    pub always: Vec<LabelSelector>,
}

/// The place where a pod requests or declines a sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The label `sidecar.istio.io/inject`.
    Label,
    /// The annotation of the same name.
    Annotation,
}

/// The rule that decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The pod is in the node's network namespace (`hostNetwork`), where redirection would affect the node's own
    /// traffic.
    HostNetwork,
    /// The pod runs on Windows, for which there is no proxy.
    Windows,
    /// The pod's namespace is a system namespace.
    IgnoredNamespace(String),
    /// The default policy is invalid.
    InvalidPolicy(String),
    /// The pod requests or declines a sidecar.
    Requested(Source, String),
    /// A `neverInjectSelector` matches the pod: the index of the first one, from 0.
    Never(usize),
    /// An `alwaysInjectSelector` matches the pod: the index of the first one, from 0.
    Always(usize),
    /// The default policy applies.
    Policy,
    /// The pod of a document already has a sidecar.
    Injected,
}

/// A decision with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether the pod gets a sidecar.
    pub inject: bool,
    pub reason: Reason,
    /// Warnings for the pod's author.
    pub warnings: Vec<Warning>,
}

/// A warning about a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// The pod's label or annotation has an unknown value, which is ignored.
    Unrecognised(String),
    /// The pod requests a sidecar, but another rule takes precedence.
    Overruled,
    /// A container has the image `auto`, which stands for a template's image, but the pod gets no sidecar.
    WithoutImage(String),
}

impl Policy {
    /// Decides whether a pod in `namespace` gets a sidecar.
    pub fn decide(&self, pod: &Value, namespace: &str) -> Decision {
        let mut decision = self.decided(pod, namespace);
        if !decision.inject {
            decision.warnings.extend(without_image(pod));
        }
        decision
    }

    fn decided(&self, pod: &Value, namespace: &str) -> Decision {
        let decide = |inject, reason| Decision { inject, reason, warnings: Vec::new() };
        let request = self.era.request_of(pod);
        if let Some(reason) = self.forbids(pod, namespace) {
            let overruled = matches!(request, PodRequest::Yes(..)).then_some(Warning::Overruled);
            return Decision { warnings: overruled.into_iter().collect(), ..decide(false, reason) };
        }
        match request {
            PodRequest::Yes(source, value) => decide(true, Reason::Requested(source, value)),
            PodRequest::No(source, value) => decide(false, Reason::Requested(source, value)),
            PodRequest::Absent => self.undecided(pod),
            PodRequest::Unrecognised(value) => {
                Decision { warnings: vec![Warning::Unrecognised(value)], ..self.undecided(pod) }
            }
        }
    }

    /// Returns the rule by which the pod gets no sidecar even on request.
    fn forbids(&self, pod: &Value, namespace: &str) -> Option<Reason> {
        if let Some(reason) = unfit(pod::spec(pod)) {
            return Some(reason);
        }
        if self.era.ignores(namespace) {
            return Some(Reason::IgnoredNamespace(namespace.to_owned()));
        }
        match &self.default {
            Default::Invalid(word) => Some(Reason::InvalidPolicy(word.clone())),
            Default::Enabled | Default::Disabled => None,
        }
    }

    /// Decides about a pod that neither requests nor declines a sidecar.
    fn undecided(&self, pod: &Value) -> Decision {
        let labels = pod::map(pod::metadata(pod), "labels");
        let label = |key: &str| labels.get(key).and_then(Value::as_str);
        // An empty selector matches no pod, whereas in Kubernetes it matches all objects.
        let selects = |selector: &LabelSelector| !selector.is_empty() && selector.matches(label);
        let first = |selectors: &[LabelSelector]| selectors.iter().position(selects);
        let selected = (self.era >= Era::V1_1).then(|| {
            let never = first(&self.never).map(|at| (false, Reason::Never(at)));
            never.or_else(|| first(&self.always).map(|at| (true, Reason::Always(at))))
        });
        let (inject, reason) = selected.flatten().unwrap_or((self.default == Default::Enabled, Reason::Policy));
        Decision { inject, reason, warnings: Vec::new() }
    }
}

/// Returns why the traffic of a pod with this spec cannot be redirected.
pub fn unfit(spec: &Value) -> Option<Reason> {
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        return Some(Reason::HostNetwork);
    }
    is_for_windows(spec).then_some(Reason::Windows)
}

/// Returns a warning for each container with the image `auto` in a pod that gets no sidecar.
pub(super) fn without_image(pod: &Value) -> impl Iterator<Item = Warning> {
    let all = [INIT_CONTAINERS, CONTAINERS].into_iter().flat_map(|which| pod::containers(pod, which));
    let asking = all.filter(|container| pod::text(container, "image") == pod::AUTO);
    asking.map(|container| Warning::WithoutImage(pod::name(container).to_owned()))
}

/// The node labels with the operating system.
const OS: [&str; 2] = ["kubernetes.io/os", "beta.kubernetes.io/os"];
/// The label that the kubelet sets on Windows nodes only.
const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";

/// Whether a pod's `os`, node selector or required node affinity requires Windows. `windowsOptions` are not considered: a pod with them may
/// run on Linux, where they have no effect.
fn is_for_windows(spec: &Value) -> bool {
    let is_windows = |field: &str, key: &str| spec.get(field).is_some_and(|field| pod::text(field, key) == "windows");
    is_windows("os", "name")
        || OS.iter().any(|label| is_windows("nodeSelector", label))
        || pod::map(spec, "nodeSelector").contains_key(WINDOWS_BUILD)
        || has_affinity_to_windows(spec)
}

/// Whether each term of the required node affinity admits only Windows. A node needs to match only one term.
fn has_affinity_to_windows(spec: &Value) -> bool {
    let required = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let terms = spec.pointer(required).map_or(&[][..], |required| pod::list(required, "nodeSelectorTerms"));
    let is_windows = |condition: &Value| {
        let (key, values) = (pod::text(condition, "key"), pod::list(condition, "values"));
        match pod::text(condition, "operator") {
            "In" if OS.contains(&key) => !values.is_empty() && values.iter().all(|value| value == "windows"),
            // The kubelet runs only on Linux and Windows.
            "NotIn" if OS.contains(&key) => values.iter().any(|value| value == "linux"),
            "In" | "Exists" | "Gt" | "Lt" => key == WINDOWS_BUILD,
            _ => false,
        }
    };
    !terms.is_empty() && terms.iter().all(|term| pod::list(term, "matchExpressions").iter().any(is_windows))
}

/// Whether a pod's label or annotation requests or declines a sidecar.
enum PodRequest {
    Yes(Source, String),
    No(Source, String),
    Absent,
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

    fn request_of(self, pod: &Value) -> PodRequest {
        let label = (self >= Self::V1_12).then(|| pod::label(pod, annotation::INJECT)).flatten();
        let (source, value) = match (label, pod::annotation(pod, annotation::INJECT)) {
            (Some(value), _) => (Source::Label, value),
            (None, Some(value)) => (Source::Annotation, value),
            (None, None) => return PodRequest::Absent,
        };
        let owned = value.to_owned();
        if value.is_empty() {
            return PodRequest::Absent;
        }
        if self >= Self::V1_27 {
            return match value {
                "true" => PodRequest::Yes(source, owned),
                // The plugin does not redirect a pod with `False` or `0`, so with a sidecar it would not start.
                other if parse_bool(other) == Some(false) => PodRequest::No(source, owned),
                _ => PodRequest::Unrecognised(owned),
            };
        }
        match value.to_lowercase().as_str() {
            "y" | "yes" | "true" | "on" => PodRequest::Yes(source, owned),
            _ => PodRequest::No(source, owned),
        }
    }
}

impl Reason {
    /// Returns the reason as the value of a metric label, from a fixed set.
    pub fn label(&self) -> &'static str {
        match self {
            Self::HostNetwork => "host_network",
            Self::Windows => "windows",
            Self::IgnoredNamespace(_) => "ignored_namespace",
            Self::InvalidPolicy(_) => "invalid_policy",
            Self::Requested(Source::Label, _) => "label",
            Self::Requested(Source::Annotation, _) => "annotation",
            Self::Never(_) => "never_selector",
            Self::Always(_) => "always_selector",
            Self::Policy => "policy",
            Self::Injected => "already",
        }
    }
}

impl Decision {
    /// Returns the decision and its reason as a sentence.
    pub fn sentence(&self) -> String {
        format!("{} Istio sidecar, for {}", if self.inject { "an" } else { "no" }, self.reason)
    }

    /// Returns the warnings for the pod's author, each with the decision.
    pub fn warning_sentences(&self) -> impl Iterator<Item = String> {
        self.warnings.iter().map(|warning| format!("{warning}: {}", self.sentence()))
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unrecognised(value) => {
                write!(f, "{} is {value:?}, neither \"true\" nor \"false\", and is ignored", annotation::INJECT)
            }
            Self::Overruled => write!(f, "{} requests a sidecar, which another rule denies", annotation::INJECT),
            Self::WithoutImage(container) => write!(
                f,
                "container {container:?} has the image \"auto\", which stands for that of a template; nobody sets it, and the \
                 container does not start"
            ),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostNetwork => f.write_str("it uses the host's network"),
            Self::Windows => f.write_str("it runs on Windows, for which there is no proxy"),
            Self::IgnoredNamespace(name) => write!(f, "namespace {name} is a system namespace"),
            Self::InvalidPolicy(word) => {
                write!(
                    f,
                    "the policy {word:?} is neither \"enabled\" nor \"disabled\"; nothing is injected until it is"
                )
            }
            Self::Requested(Source::Label, value) => write!(f, "its label {} is {value:?}", annotation::INJECT),
            Self::Requested(Source::Annotation, value) => {
                write!(f, "its annotation {} is {value:?}", annotation::INJECT)
            }
            Self::Never(at) => write!(f, "neverInjectSelector {at} matches its labels"),
            Self::Always(at) => write!(f, "alwaysInjectSelector {at} matches its labels"),
            Self::Policy => f.write_str("the injector's policy applies, because no label, annotation or selector does"),
            Self::Injected => f.write_str("it has its sidecar already"),
        }
    }
}

#[cfg(test)]
mod tests;
