//! Istio's injection: who gets a sidecar, and what becomes of the pod.
//!
//! ```text
//! config, values, mesh ─ parsed once ─▶ Injector
//! pod ─ policy ─▶ Decision ─ yes ─ templates ─▶ overlay ─ merge ─▶ pod ─ what the pod says, probes, metrics, status ─▶ patch
//! ```
//!
//! The webhook calls [`Injector::review`] for each pod, the command line [`Injector::inject_document`] for each document.
//! Nothing here reads a file or asks a server. What is remembered from pod to pod is what a rendered text means.

mod annotations;
mod builtin;
mod config;
mod data;
mod documents;
mod error;
pub mod functions;
mod legacy;
mod mesh;
mod openshift;
mod order;
mod overlay;
mod overrides;
mod owner;
mod pipeline;
pub mod policy;
mod probes;
mod prometheus;
mod proto;
mod proxy_config;
mod settings;
pub mod shapes;
mod status;
mod subject;
mod values;

use std::collections::BTreeMap;

use gotemplate::Budget;
use serde_json::Value;

#[cfg(test)]
pub(crate) use annotations::allowed;
pub use builtin::BuiltIn;
pub use config::{Config, Platform};
pub use documents::{Document, Native, Skipped};
pub use error::Error;
pub use mesh::Mesh;
pub use owner::Owner;
pub use policy::{Decision, Era, Policy, Reason, Remark};
pub use settings::Settings;
pub use values::Values;

use crate::inject::patch::{self, Operation};
use overlay::Overlays;
use settings::Program;
use subject::Subject;

/// What is asked about one pod.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The pod, as the API server sent it.
    pub pod: &'a Value,
    /// The namespace in which it will be, where it names none.
    pub namespace: &'a str,
    /// The namespace's annotations; only OpenShift's ranges are read.
    pub namespace_annotations: Option<&'a BTreeMap<String, String>>,
    /// `ProxyConfig` resources of the root namespace and the pod's.
    pub proxy_configs: &'a [Value],
    /// Variables for the sidecar, from the webhook's URL.
    pub env: BTreeMap<String, String>,
    /// Whether the cluster's nodes have native sidecars.
    pub native_sidecars: bool,
    /// What the review may spend.
    pub budget: Budget,
}

impl<'a> Request<'a> {
    /// A pod of which no more is known than where it will be.
    pub fn new(pod: &'a Value, namespace: &'a str) -> Self {
        Self {
            pod,
            namespace,
            namespace_annotations: None,
            proxy_configs: &[],
            env: BTreeMap::new(),
            native_sidecars: false,
            budget: Budget::default(),
        }
    }
}

/// What becomes of a pod.
#[derive(Debug, Clone, PartialEq)]
pub enum InjectionOutcome<'a> {
    /// It stays as it is.
    Skipped(Decision),
    /// It gets a sidecar.
    Injected {
        /// Why.
        decision: Decision,
        /// What it becomes.
        injected: Injected<'a>,
    },
}

/// A pod with its sidecar.
#[derive(Debug, Clone, PartialEq)]
pub struct Injected<'a> {
    /// The pod as it came.
    original: &'a Value,
    /// The pod with its sidecar.
    pub pod: Value,
    /// What of the pod's annotations was passed over, for whoever made the pod.
    pub warnings: Vec<String>,
    /// How it was made, where it was made step by step.
    steps: Option<Vec<Operation>>,
}

impl Injected<'_> {
    /// What makes the pod of the one that came.
    pub fn patch(&self) -> Vec<Operation<&Value>> {
        match &self.steps {
            Some(steps) => steps.iter().map(Operation::borrowed).collect(),
            None => patch::diff(self.original, &self.pod),
        }
    }
}

/// Injects sidecars by one configuration. Cheap to share; a new configuration is a new injector.
#[derive(Debug)]
pub struct Injector {
    config: Config,
    overlays: Overlays,
}

impl Injector {
    /// An injector for this configuration.
    pub fn new(config: Config) -> Self {
        Self { config, overlays: Overlays::default() }
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether a pod gets a sidecar, and why.
    pub fn decide(&self, pod: &Value, namespace: &str) -> Decision {
        self.config.settings.policy.decide(pod, namespace_of(pod, namespace))
    }

    /// Decides about a pod and injects it.
    ///
    /// # Errors
    /// The pod should get a sidecar and cannot; the text is meant for whoever made the pod.
    pub fn review<'a>(&self, request: &Request<'a>) -> Result<InjectionOutcome<'a>, Error> {
        let pod = request.pod;
        let namespace = namespace_of(pod, request.namespace);
        let decision = self.decide(pod, namespace);
        if !decision.inject {
            return Ok(InjectionOutcome::Skipped(decision));
        }
        let budget = &mut request.budget.clone();
        annotations::charge(pod, budget)?;
        let mesh = &self.config.mesh;
        let proxy_config = mesh.proxy_of(pod, namespace, request.proxy_configs, budget)?;
        match &self.config.settings.program {
            Program::Legacy(program) => {
                let subject = Subject::plain(pod, Owner::of_legacy_pod(pod, namespace), proxy_config);
                let steps = legacy::inject(&self.config, program, &subject, budget)?;
                let patched = legacy::patched(pod, &steps)?;
                let injected = Injected { original: pod, pod: patched, warnings: Vec::new(), steps: Some(steps) };
                Ok(InjectionOutcome::Injected { decision, injected })
            }
            Program::Modern { default, aliases, .. } => {
                let openshift = self.config.platform == Platform::OpenShift;
                let mut original = std::borrow::Cow::Borrowed(pod);
                if openshift {
                    openshift::clear_stamped_user(original.to_mut());
                }
                let ids = request.namespace_annotations.filter(|_| openshift).map(openshift::ids);
                let subject = Subject {
                    namespace,
                    templates: default,
                    aliases,
                    env: request.env.clone(),
                    native: request.native_sidecars,
                    ids: ids.unwrap_or_default(),
                    annotations: Some(&self.config.settings.injected_annotations),
                    ..Subject::plain(&original, Owner::of_pod(pod, namespace), proxy_config)
                };
                let (merged, warnings) = pipeline::inject(&self.config, &self.overlays, &subject, budget)?;
                let injected = Injected { original: pod, pod: merged, warnings, steps: None };
                Ok(InjectionOutcome::Injected { decision, injected })
            }
        }
    }
}

/// The pod's own namespace, else the one in which it will be made.
fn namespace_of<'a>(pod: &'a Value, namespace: &'a str) -> &'a str {
    match super::pod::text(super::pod::metadata(pod), "namespace") {
        "" => namespace,
        own => own,
    }
}
