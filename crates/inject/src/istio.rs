//! Istio's injection: decides whether a pod gets a sidecar, and injects it.
//!
//! ```text
//! config, values, mesh ─ parsed once ─▶ Injector
//! pod ─ policy ─▶ Decision ─ inject ─ templates ─▶ overlay ─ merge ─▶ injected pod
//! injected pod ─ overrides, probes, metrics, status ─▶ patch
//! ```
//!
//! The webhook calls [`Injector::review`] for each pod, the command line [`Injector::inject_document`] for each
//! document. No function reads a file or calls a server. The only state shared by pods is the cache of parsed overlays.

mod advice;
mod annotations;
mod arguments;
mod builtin;
mod chart_values;
mod config;
mod data;
mod digest;
mod documents;
mod early;
mod elsewhere;
mod error;
mod former;
pub mod functions;
mod handler;
mod job;
mod legacy;
mod legacy_template;
mod log_levels;
mod mesh;
mod of_workload;
mod openshift;
mod order;
mod overlay;
mod overrides;
mod owner;
mod pipeline;
mod place;
pub mod policy;
mod probes;
mod prometheus;
mod proto;
mod proxy;
mod proxy_config;
mod recorded;
mod sandbox;
mod settings;
pub mod shapes;
mod splice;
mod startable;
mod status;
mod status_port;
mod subject;
mod unions;
mod unused;
mod unused_values;
mod user_volumes;
mod values;

use std::borrow::Cow;
use std::collections::BTreeMap;

use gotemplate::Budget;
use serde_json::Value;

pub use annotations::{allowed, is_of_templates};
pub use builtin::BuiltIn;
pub use config::{Config, Platform};
pub use documents::{Document, Native, Skipped};
pub use error::Error;
pub use mesh::Mesh;
pub use owner::Owner;
pub use policy::{Decision, Era, Policy, Reason, Warning};
pub use settings::Settings;
pub use startable::{Bound, Excess, Unstartable, with_derived_resources};
pub use values::Values;

use crate::patch::{self, Operation};
use overlay::Overlays;
use settings::{Program, SIDECAR};
use status::Status;
use subject::Subject;

/// A pod to review, with the settings and the state of the cluster on which its injection depends.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The pod in the API server's request.
    pub pod: &'a Value,
    /// The namespace of the request, for pods that name none.
    pub namespace: &'a str,
    /// The namespace's annotations; only those with OpenShift's ID ranges are read.
    pub namespace_annotations: Option<&'a BTreeMap<String, String>>,
    /// The `ProxyConfig` resources of the root namespace and the pod's namespace.
    pub proxy_configs: &'a [Value],
    /// Environment variables for the sidecar, from the webhook's URL.
    pub env: BTreeMap<String, String>,
    /// Whether sidecars are native, unless the pod's annotation decides.
    pub native_sidecars: bool,
    /// Whether the handler of the pod's RuntimeClass is a sandboxed runtime; `None`: the name of the class decides.
    pub sandbox: Option<bool>,
    /// The budget of the review.
    pub budget: Budget,
}

impl<'a> Request<'a> {
    /// Creates a request with defaults for everything but the pod and the namespace.
    pub fn new(pod: &'a Value, namespace: &'a str) -> Self {
        Self {
            pod,
            namespace,
            namespace_annotations: None,
            proxy_configs: &[],
            env: BTreeMap::new(),
            native_sidecars: false,
            sandbox: None,
            budget: Budget::default(),
        }
    }
}

/// The sandboxed runtime of a pod with a sidecar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    /// The pod's runtime class.
    pub class: String,
    /// Whether the pod waits for a redirection that it never gets.
    pub is_validated: bool,
}

/// The result of a review.
#[derive(Debug, Clone, PartialEq)]
pub enum InjectionOutcome<'a> {
    /// The pod stays unchanged.
    Skipped(Decision),
    /// The pod gets a sidecar.
    Injected { decision: Decision, injected: Injected<'a> },
}

/// A pod with its sidecar.
#[derive(Debug, Clone, PartialEq)]
pub struct Injected<'a> {
    /// The pod before the injection.
    original: &'a Value,
    /// The pod with its sidecar.
    pub pod: Value,
    /// Warnings for the pod's author.
    pub warnings: Vec<String>,
    /// The patch, if a legacy template made it. Otherwise the patch is the difference of the two pods.
    operations: Option<Vec<Operation>>,
}

impl Injected<'_> {
    /// Returns the patch from the original to the injected pod.
    pub fn patch(&self) -> Vec<Operation<&Value>> {
        match &self.operations {
            Some(operations) => operations.iter().map(Operation::borrowed).collect(),
            None => patch::diff(self.original, &self.pod),
        }
    }

    /// Returns the patch, or `None` if its operations take more than `limit` bytes of JSON without their values.
    pub fn patch_within(&self, limit: usize) -> Option<Vec<Operation<&Value>>> {
        match &self.operations {
            Some(operations) => patch::is_within(operations, limit).then(|| self.patch()),
            None => patch::diff_within(self.original, &self.pod, limit),
        }
    }
}

/// Injects sidecars as one configuration specifies. A new configuration requires a new injector.
#[derive(Debug)]
pub struct Injector {
    config: Config,
    /// The [digest](digest::of_config) of `config`.
    digest: String,
    overlays: Overlays,
    refuse_sandboxes: bool,
}

impl Injector {
    pub fn new(config: Config) -> Self {
        Self { digest: digest::of_config(&config), config, overlays: Overlays::default(), refuse_sandboxes: false }
    }

    /// Sets whether pods with a sandboxed runtime, which the rules of the node's kernel do not reach, are refused instead of injected with
    /// a warning.
    #[must_use]
    pub fn with_sandboxes_refused(self, refuse_sandboxes: bool) -> Self {
        Self { refuse_sandboxes, ..self }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Decides whether a pod gets a sidecar, and why.
    pub fn decide(&self, pod: &Value, namespace: &str) -> Decision {
        self.config.settings.policy.decide(pod, namespace_of(pod, namespace))
    }

    /// Returns the warnings about a pod that has its sidecar. `sandbox`: see [`Request::sandbox`].
    pub fn warnings(&self, pod: &Value, namespace: &str, sandbox: Option<bool>) -> Vec<String> {
        let (mesh, mut warnings) = (&self.config.mesh, advice::warnings(pod, sandbox));
        let proxy = self.proxy_of(pod, namespace);
        if let Some(proxy) = &proxy {
            warnings.extend(status_port::warnings(pod, pod, (&mesh.json, proxy)));
        }
        warnings.extend(early::warnings(pod, early::Context::of(proxy.as_ref(), sandbox)));
        warnings
    }

    /// Returns the proxy configuration of an injected pod; `None` if its annotation is invalid, which an injection would have refused.
    fn proxy_of(&self, pod: &Value, namespace: &str) -> Option<Value> {
        self.config.mesh.proxy_of(pod, namespace_of(pod, namespace), &[], &mut Budget::default()).ok()
    }

    /// Returns the sandboxed runtime in which the node's rules do not reach a pod with a sidecar; `None` if the pod has none, or if its
    /// traffic is not redirected by the node. `sandbox`: see [`Request::sandbox`].
    pub fn sandbox(pod: &Value, sandbox: Option<bool>) -> Option<Sandbox> {
        let class = sandbox::redirected_sandbox(pod, sandbox)?.to_owned();
        Some(Sandbox { class, is_validated: annotations::is_validated(pod) })
    }

    /// Checks that a pod that has its sidecar can start, with the checks of an injection. `sandbox`: see [`Request::sandbox`].
    ///
    /// # Errors
    /// The pod would not be created, or would not start, because of what an injection left in it.
    pub fn check(&self, pod: &Value, namespace: &str, sandbox: Option<bool>) -> Result<(), Error> {
        if !self.decide(pod, namespace).inject {
            return annotations::check_skipped(pod, namespace_of(pod, namespace));
        }
        startable::check_annotations(pod)?;
        early::check(pod, early::Context::of(self.proxy_of(pod, namespace).as_ref(), sandbox))?;
        let budget = &mut Budget::default();
        let owner = Owner::of_pod(pod, namespace_of(pod, namespace));
        let Some(status) = Status::of(pod, budget)? else { return Ok(()) };
        let before = former::original(pod, &owner.name, budget)?;
        annotations::check_injected(pod)?;
        startable::check((&before, &[]), pod, &status.template_pod())?;
        Ok(())
    }

    /// Decides about a pod and injects it.
    ///
    /// # Errors
    /// The pod cannot get the sidecar that the decision requires; the message is for the pod's author.
    pub fn review<'a>(&self, request: &Request<'a>) -> Result<InjectionOutcome<'a>, Error> {
        let outcome = self.inject(request)?;
        let refused = match &outcome {
            InjectionOutcome::Injected { injected, .. } if self.refuse_sandboxes => {
                sandbox::redirected_sandbox(&injected.pod, request.sandbox)
            }
            _ => None,
        };
        match refused {
            Some(class) => Err(Error::Sandbox(class.to_owned())),
            None => Ok(outcome),
        }
    }

    /// Decides about a pod and injects it, even if the node's rules do not reach it.
    fn inject<'a>(&self, request: &Request<'a>) -> Result<InjectionOutcome<'a>, Error> {
        let pod = request.pod;
        let namespace = namespace_of(pod, request.namespace);
        let decision = self.decide(pod, namespace);
        if !decision.inject {
            annotations::check_skipped(pod, namespace)?;
            return Ok(InjectionOutcome::Skipped(decision));
        }
        // Checked first: such a pod would otherwise exceed the budget, and the error would not name its annotations.
        startable::check_annotations(pod)?;
        let budget = &mut request.budget.clone();
        annotations::charge(pod, budget)?;
        let mesh = &self.config.mesh;
        let proxy_config = mesh.proxy_of(pod, namespace, request.proxy_configs, budget)?;
        match &self.config.settings.program {
            Program::Legacy(program) => {
                let owner = Owner::of_legacy_pod(pod, namespace);
                let own = legacy::without_later(pod, &owner.name, budget)?;
                let subject = Subject { sandbox: request.sandbox, ..Subject::plain(&own, owner, proxy_config) };
                let operations = legacy::inject(&self.config, program, &subject, budget)?;
                let patched = legacy::patched(&own, &operations)?;
                early::check(&patched, subject.context())?;
                let operations = matches!(own, Cow::Borrowed(_)).then_some(operations);
                let reads = &self.config.settings.reads;
                let mut warnings = unused::warnings(reads, std::iter::once(SIDECAR), pod);
                warnings.extend(advice::warnings(&patched, request.sandbox));
                warnings.extend(early::warnings(&patched, subject.context()));
                let injected = Injected { original: pod, pod: patched, warnings, operations };
                Ok(InjectionOutcome::Injected { decision, injected })
            }
            Program::Modern { default, aliases, .. } => {
                let openshift = self.config.platform == Platform::OpenShift;
                let mut original = Cow::Borrowed(pod);
                if openshift {
                    openshift::clear_default_user(original.to_mut());
                }
                let ids = request.namespace_annotations.filter(|_| openshift).map(openshift::ids);
                let subject = Subject {
                    namespace,
                    templates: default,
                    aliases,
                    env: request.env.clone(),
                    native: request.native_sidecars,
                    sandbox: request.sandbox,
                    ids: ids.unwrap_or_default(),
                    annotations: Some(&self.config.settings.injected_annotations),
                    digest: Some(&self.digest),
                    ..Subject::plain(&original, Owner::of_pod(pod, namespace), proxy_config)
                };
                let (merged, warnings) = pipeline::inject(&self.config, &self.overlays, &subject, budget)?;
                let injected = Injected { original: pod, pod: merged, warnings, operations: None };
                Ok(InjectionOutcome::Injected { decision, injected })
            }
        }
    }
}

/// Returns the namespace in the pod's metadata or, if there is none, the namespace of the request.
fn namespace_of<'a>(pod: &'a Value, namespace: &'a str) -> &'a str {
    match super::pod::text(super::pod::metadata(pod), "namespace") {
        "" => namespace,
        own => own,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_is_limited_whether_a_template_or_a_comparison_makes_it() {
        let (before, after) = (json!({"a": 1, "b": 2}), json!({"a": 1, "c": [3]}));
        let compared = Injected { original: &before, pod: after, warnings: Vec::new(), operations: None };
        let operations = Some(vec![
            Operation::Remove { path: "/b".to_owned() },
            Operation::Add { path: "/c".to_owned(), value: json!([3]) },
        ]);
        let legacy = Injected { operations, ..compared.clone() };
        let least = 2 * r#"{"op":"remove","path":"/b"}"#.len();
        for injected in [compared, legacy] {
            assert_eq!(injected.patch_within(least), Some(injected.patch()));
            assert_eq!(injected.patch_within(least - 1), None);
        }
    }
}
