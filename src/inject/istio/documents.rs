//! Workloads from files: their pods get a sidecar where they stand, in the document.
//!
//! Of the policy only what the pod itself says is honoured, for whoever asks by hand wants it done.

use std::fmt;

use serde_json::Value;

use super::pipeline::{self, Subject};
use super::policy::{self, Decision, Policy, Reason};
use super::settings::{Program, SIDECAR};
use super::{Error, Injector, Owner, legacy};
use crate::inject::workload::{self, Kind};
use crate::inject::{document, pod, yaml};

/// A workload that stays as it is, and why; for the person who asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its kind.
    pub kind: String,
    /// `namespace/name`, or the name where it has no namespace.
    pub name: String,
    /// Why.
    pub decision: Decision,
}

/// What becomes of a document.
#[derive(Debug, Clone, PartialEq)]
pub enum Document {
    /// Nothing: it has no pod that injection knows of. Its text should be kept as it is.
    Untouched,
    /// It is a workload; each pod that got no sidecar is listed.
    Workload {
        /// The document with its sidecars.
        document: Value,
        /// Workloads in it that stay as they are.
        skipped: Vec<Skipped>,
    },
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, decision } = self;
        match decision.reason {
            Reason::HostNetwork => write!(f, "Skipping injection because {kind} {name:?} has host networking enabled"),
            _ => write!(f, "Skipping injection because {kind} {name:?} has sidecar injection disabled"),
        }
    }
}

impl Injector {
    /// Injects all documents of a text, as `kube-inject` does: what has no pod passes as the text that it was, each
    /// document is followed by a separator.
    ///
    /// # Errors
    /// A document is no YAML, or its pod cannot be injected.
    pub fn inject_text(&self, text: &str, native_sidecars: bool) -> Result<(String, Vec<Skipped>), Error> {
        let (mut output, mut all_skipped) = (String::with_capacity(2 * text.len()), Vec::new());
        let texts = document::documents(text).into_iter().filter(|text| !document::is_empty(text));
        for (at, text) in texts.enumerate() {
            let value = yaml::value(text).map_err(|error| Error::Document { number: at + 1, error })?;
            match self.inject_document(value, native_sidecars)? {
                Document::Untouched => output.extend([text.trim_end_matches('\n'), "\n---\n"]),
                Document::Workload { document, skipped } => {
                    output.push_str(&document::write(document)?);
                    all_skipped.extend(skipped);
                }
            }
        }
        Ok((output, all_skipped))
    }

    /// Injects the workload that a document is, or those that it lists. `native_sidecars`: whether the cluster has them.
    ///
    /// # Errors
    /// A pod should get a sidecar and cannot, or a workload has none.
    pub fn inject_document(&self, mut document: Value, native_sidecars: bool) -> Result<Document, Error> {
        let mut skipped = Vec::new();
        let is_workload = workload::each(&mut document, &mut |document: &mut Value, kind| {
            self.inject_workload(document, kind, native_sidecars, &mut skipped)
        })?;
        Ok(if is_workload { Document::Workload { document, skipped } } else { Document::Untouched })
    }

    fn inject_workload(
        &self,
        document: &mut Value,
        kind: Kind,
        native: bool,
        skipped: &mut Vec<Skipped>,
    ) -> Result<(), Error> {
        let (metadata, spec) = kind.pointers();
        let Some(subject) = workload::pod(document, (metadata, spec)) else {
            let (kind, name) = workload::title(document);
            return Err(Error::NoTemplate(format!("{kind} {name:?}")));
        };
        let namespace = pod::text(pod::metadata(&subject), "namespace");
        let decision = by_hand(&self.config().settings.policy).decide(&subject, namespace);
        if !decision.inject {
            let (kind, name) = workload::title(document);
            skipped.push(Skipped { kind, name, decision });
            return Ok(());
        }
        let owner = owner(document, kind);
        let mut injected = self.inject_by_hand(&subject, owner, native)?;
        workload::put(document, spec, injected["spec"].take());
        workload::put(document, metadata, injected["metadata"].take());
        Ok(())
    }

    fn inject_by_hand(&self, subject: &Value, owner: Owner, native: bool) -> Result<Value, Error> {
        let config = self.config();
        let namespace = pod::text(pod::metadata(subject), "namespace");
        let proxy_config = config.mesh.proxy_of(subject, namespace, &[])?;
        if let Program::Legacy(program) = &config.settings.program {
            let patch = legacy::inject(config, program, subject, &owner, proxy_config)?;
            return Ok(legacy::patched(subject, &patch)?);
        }
        let templates = [SIDECAR.to_owned()];
        let subject = Subject { templates: &templates, native, ..Subject::plain(subject, owner, proxy_config) };
        pipeline::inject(config, &self.overlays, &subject)
    }
}

/// The rules that hold for documents: everything gets a sidecar that does not decline.
fn by_hand(policy: &Policy) -> Policy {
    Policy { era: policy.era, default: policy::Default::Enabled, never: Vec::new(), always: Vec::new() }
}

/// The workload itself; a pod may belong to another.
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
mod tests {
    use super::*;
    use crate::inject::istio::BuiltIn;

    fn inject(text: &str) -> Result<(String, Vec<Skipped>), Error> {
        Injector::new(BuiltIn::default().config().unwrap()).inject_text(text, false)
    }

    #[test]
    fn what_has_no_pod_passes_as_it_was() {
        let text = "# a comment\napiVersion: v1\nkind: Service\nmetadata: {name: web}   # and one more\n";
        let custom = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nspec: {tasks: []}\n";
        let (output, skipped) = inject(&format!("---\n{text}---\n\n# nothing\n---\n{custom}")).unwrap();
        assert_eq!(output, format!("{text}---\n{custom}---\n"));
        assert_eq!(skipped, []);
    }

    #[test]
    fn who_declines_is_named_with_the_reason() {
        let pod = |name: &str, labels: &str, spec: &str| {
            format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, labels: {labels}}}\nspec: {spec}\n---\n"
            )
        };
        let host = pod("host", "{}", "{hostNetwork: true, containers: []}");
        let no = pod("quiet", "{sidecar.istio.io/inject: 'false'}", "{containers: []}");
        let (output, skipped) = inject(&(host + &no)).unwrap();
        let lines: Vec<String> = skipped.iter().map(ToString::to_string).collect();
        assert_eq!(lines[0], "Skipping injection because Pod \"shop/host\" has host networking enabled");
        assert_eq!(lines[1], "Skipping injection because Pod \"shop/quiet\" has sidecar injection disabled");
        assert!(!output.contains("istio-proxy"));
    }

    #[test]
    fn a_list_is_injected_item_by_item() {
        let list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service, metadata: {name: s}}\n\
                    - {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a}]}}\n";
        let (output, _) = inject(list).unwrap();
        assert_eq!(output.matches("name: istio-proxy").count(), 1);
    }

    #[test]
    fn a_workload_without_a_pod_and_a_broken_document_are_errors() {
        let error = inject("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {}\n").unwrap_err();
        assert_eq!(error.to_string(), "Deployment \"d\" has no pod template: spec.template is required");
        let error = inject("a: 1\n---\nb: [\n").unwrap_err().to_string();
        assert!(error.starts_with("document 2 cannot be read: "), "{error}");
    }
}
