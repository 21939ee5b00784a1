//! Injection of workloads in documents, as `istioctl kube-inject` does.
//!
//! The policy's selectors and default do not apply, because the user requested the injection. The pod's own label or
//! annotation still applies: a pod that declines a sidecar gets none.

use std::borrow::Cow;
use std::fmt;

use gotemplate::Budget;
use serde_json::Value;

use super::job::{self, Job};
use super::policy::{self, Decision, Policy, Reason};
use super::settings::Program;
use super::subject::Subject;
use super::{Error, Injector, Owner, advice, annotations, elsewhere, former, legacy, of_workload, pipeline, startable};
use crate::pod;
use crate::workload::{self, Kind};

/// A workload that stays unchanged, with the reason for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    pub kind: String,
    /// `namespace/name`, or the name alone if the workload has no namespace.
    pub name: String,
    pub decision: Decision,
}

/// The result of injecting a document.
#[derive(Debug, Clone, PartialEq)]
pub enum Document {
    /// The document is not a known workload. It should be printed unchanged.
    Untouched,
    /// The document is a workload or a list.
    Workload {
        /// The document with the sidecars.
        document: Value,
        /// The workloads that stay unchanged.
        skipped: Vec<Skipped>,
        /// Warnings, each with the workload's name.
        warnings: Vec<String>,
    },
}

/// A function that returns whether pods on a node get native sidecars. For a pod that is not bound to a node, the
/// argument is `None`.
pub type Native<'a> = &'a dyn Fn(Option<&str>) -> bool;

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, decision } = self;
        match decision.reason {
            Reason::HostNetwork => write!(f, "Skipping injection because {kind} {name:?} has host networking enabled"),
            Reason::Windows => write!(f, "Skipping injection because {kind} {name:?} runs on Windows"),
            Reason::IgnoredNamespace(_) => {
                write!(f, "Skipping injection of {kind} {name:?}, because {}", decision.reason)
            }
            Reason::Injected => {
                write!(f, "Skipping injection because {kind} {name:?} has injected \"istio-proxy\" sidecar already")
            }
            _ => write!(f, "Skipping injection because {kind} {name:?} has sidecar injection disabled"),
        }
    }
}

impl Injector {
    /// Injects a workload, or all workloads of a list.
    ///
    /// # Errors
    /// A pod cannot get its sidecar, or a workload has no pod spec.
    pub fn inject_document(&self, mut document: Value, native: Native<'_>) -> Result<Document, Error> {
        let mut messages = Messages::default();
        let is_workload = workload::for_each(&mut document, &mut |document: &mut Value, kind| {
            self.inject_workload(document, kind, native, &mut messages).map_err(|cause| {
                let (kind, name) = workload::kind_and_name(document);
                Error::Workload { kind, name, cause: Box::new(cause) }
            })
        })?;
        let Messages { skipped, warnings } = messages;
        Ok(if is_workload { Document::Workload { document, skipped, warnings } } else { Document::Untouched })
    }

    fn inject_workload(
        &self,
        document: &mut Value,
        kind: Kind,
        native: Native<'_>,
        messages: &mut Messages,
    ) -> Result<(), Error> {
        let (metadata, spec) = kind.template();
        let mut subject = workload::pod(document, (metadata, spec)).ok_or_else(|| no_pod(spec))?;
        let job = Job::of(document, kind, &mut subject);
        let namespace = namespace(document, &subject);
        let policy = document_policy(&self.config().settings.policy);
        let mut decision = policy.decide(&subject, &namespace);
        let declined = job.as_ref().and_then(|job| job::declines(&policy, &decision, &job.metadata));
        if let Some(declined) = declined.filter(|_| decision.inject) {
            decision = Decision { warnings: policy::without_image(&subject).collect(), ..declined };
        }
        if decision.inject && self.skips_injected_pods() && legacy::kube_inject::has_sidecar(&subject) {
            decision = Decision { inject: false, reason: Reason::Injected, warnings: Vec::new() };
        }
        let (title, name) = workload::kind_and_name(document);
        let told = |warning: String| format!("{title} {name:?}: {warning}");
        messages.warnings.extend(decision.warning_sentences().map(told));
        if !decision.inject {
            annotations::check_skipped(&subject, &namespace)?;
            messages.skipped.push(Skipped { kind: title, name, decision });
            return Ok(());
        }
        let owner = owner(document, kind);
        let workload_name = owner.name.clone();
        let native = native(pod::node_name(&subject));
        let claims = workload::claims(document);
        let (mut injected, warnings) = self.inject_pod((&subject, &namespace), owner, native, &claims)?;
        let author = self.original(&subject, &workload_name)?;
        of_workload::check(document, &author, &injected)?;
        let warnings = warnings.into_iter().chain(elsewhere::warning(document, kind, &subject));
        messages.warnings.extend(warnings.map(told));
        if let Some(job) = job {
            let metadata = job::extended(&job, (&subject, &injected), &workload_name, &mut Budget::default())?;
            workload::put(document, job.pointer, metadata);
        }
        workload::put(document, spec, injected["spec"].take());
        workload::put(document, metadata, injected["metadata"].take());
        Ok(())
    }

    /// Returns the pod before a former injection.
    fn original<'a>(&self, pod: &'a Value, owner: &str) -> Result<Cow<'a, Value>, Error> {
        let budget = &mut Budget::default();
        match &self.config().settings.program {
            Program::Legacy(_) => legacy::without_later(pod, owner, budget),
            Program::Modern { .. } => former::original(pod, owner, budget),
        }
    }

    /// Whether pods with a sidecar stay unchanged, as in Istio 1.2 to 1.7.
    fn skips_injected_pods(&self) -> bool {
        let config = self.config();
        match &config.settings.program {
            Program::Legacy(program) => (2..PATCHED_SINCE).contains(&program.release(&config.values)),
            Program::Modern { .. } => false,
        }
    }

    fn inject_pod(
        &self,
        (pod, namespace): (&Value, &str),
        owner: Owner,
        native: bool,
        claims: &[String],
    ) -> Result<(Value, Vec<String>), Error> {
        startable::check_annotations(pod)?;
        let config = self.config();
        let budget = &mut Budget::default();
        let proxy_config = config.mesh.proxy_of(pod, namespace, &[], budget)?;
        match &config.settings.program {
            Program::Legacy(program) => {
                let pod = &legacy::without_later(pod, &owner.name, budget)?;
                let subject = Subject { namespace, ..Subject::plain(pod, owner, proxy_config) };
                if program.release(&config.values) < PATCHED_SINCE {
                    return Ok(advised(legacy::kube_inject::inject(config, program, &subject, budget)?));
                }
                let patch = legacy::inject(config, program, &subject, budget)?;
                Ok(advised(legacy::patched(pod, &patch)?))
            }
            Program::Modern { default, aliases, .. } => {
                let plain = Subject::plain(pod, owner, proxy_config);
                let subject = Subject { namespace, templates: default, aliases, native, claims, ..plain };
                pipeline::inject(config, &self.overlays, &subject, budget)
            }
        }
    }
}

/// Returns the error for a workload without a pod's spec at this pointer.
fn no_pod(spec: &str) -> Error {
    Error::NoPodSpec(spec.trim_start_matches('/').replace('/', "."))
}

/// Returns the namespace of a document's pod: the workload's, in which the API server creates the pod or, if it has none, that in the pod
/// template.
fn namespace(document: &Value, pod: &Value) -> String {
    let of = |object| pod::text(pod::metadata(object), "namespace");
    [of(document), of(pod)].into_iter().find(|name| !name.is_empty()).unwrap_or_default().to_owned()
}

/// Returns a pod with the warnings about it.
fn advised(pod: Value) -> (Value, Vec<String>) {
    let warnings = advice::warnings(&pod, None);
    (pod, warnings)
}

/// The first minor release of Istio 1 whose `kube-inject` applies the webhook's patch.
const PATCHED_SINCE: u32 = 8;

/// The messages about the workloads of a document.
#[derive(Debug, Default)]
struct Messages {
    skipped: Vec<Skipped>,
    warnings: Vec<String>,
}

/// Returns the policy for documents: pods get a sidecar unless they decline it.
fn document_policy(policy: &Policy) -> Policy {
    Policy { era: policy.era, default: policy::Default::Enabled, never: Vec::new(), always: Vec::new() }
}

/// Returns the owner of the document's pod: the workload or, if the document is a pod, the owner in its owner
/// reference.
fn owner(document: &Value, kind: Kind) -> Owner {
    let metadata = pod::metadata(document);
    let namespace = pod::text(metadata, "namespace");
    if kind == Kind::Pod {
        return Owner::of_pod(document, namespace);
    }
    Owner {
        api_version: pod::text(document, "apiVersion").to_owned(),
        kind: pod::text(document, "kind").to_owned(),
        name: pod::name(metadata).to_owned(),
        namespace: namespace.to_owned(),
    }
}

#[cfg(test)]
mod tests;
