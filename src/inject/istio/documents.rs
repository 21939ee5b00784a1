//! Workloads from files: their pods get a sidecar where they stand, in the document.
//!
//! Of the policy only what the pod itself says is honoured, for whoever asks by hand wants it done.

use serde_json::{Map, Value, json};

use super::pipeline::{self, Subject};
use super::policy::{self, Decision, Policy};
use super::settings::{Program, SIDECAR};
use super::{Error, Injector, Owner, legacy};
use crate::inject::pod;
use crate::inject::workload::Kind;

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

impl Injector {
    /// Injects the workload that a document is, or those that it lists. `native_sidecars`: whether the cluster has them.
    ///
    /// # Errors
    /// A pod should get a sidecar and cannot, or a workload has none.
    pub fn inject_document(&self, mut document: Value, native_sidecars: bool) -> Result<Document, Error> {
        let mut skipped = Vec::new();
        match self.inject_workload(&mut document, native_sidecars, &mut skipped)? {
            true => Ok(Document::Workload { document, skipped }),
            false => Ok(Document::Untouched),
        }
    }

    /// Whether the document is a workload, or a list.
    fn inject_workload(&self, document: &mut Value, native: bool, skipped: &mut Vec<Skipped>) -> Result<bool, Error> {
        let Some(kind) = Kind::of(document) else { return Ok(false) };
        if kind == Kind::List {
            for item in document.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
                self.inject_workload(item, native, skipped)?;
            }
            return Ok(true);
        }
        let (metadata, spec) = kind.pointers();
        let Some(pod_spec) = document.pointer(spec).filter(|spec| spec.is_object()).cloned() else {
            return Err(Error::NoTemplate(format!("{} {:?}", pod::text(document, "kind"), title(document))));
        };
        let pod_metadata = document.pointer(metadata).cloned().unwrap_or_else(|| json!({}));
        let subject = json!({"metadata": pod_metadata, "spec": pod_spec});
        let namespace = pod::text(pod::metadata(&subject), "namespace");
        let decision = by_hand(&self.config().settings.policy).decide(&subject, namespace);
        if !decision.inject {
            let kind = pod::text(document, "kind").to_owned();
            skipped.push(Skipped { kind, name: title(document), decision });
            return Ok(true);
        }
        let owner = owner(document, kind);
        let mut injected = self.inject_by_hand(&subject, owner, native)?;
        put(document, spec, injected["spec"].take());
        put(document, metadata, injected["metadata"].take());
        Ok(true)
    }

    fn inject_by_hand(&self, subject: &Value, owner: Owner, native: bool) -> Result<Value, Error> {
        let config = self.config();
        let namespace = pod::text(pod::metadata(subject), "namespace");
        let proxy_config = config.mesh.proxy_of(subject, namespace, &[])?;
        if let Program::Legacy { template, version } = &config.settings.program {
            let patch = legacy::inject(config, (template, version), subject, &owner, proxy_config)?;
            return Ok(legacy::patched(subject, &patch)?);
        }
        let templates = [SIDECAR.to_owned()];
        let subject = Subject { templates: &templates, native, ..Subject::plain(subject, owner, proxy_config) };
        pipeline::inject(config, &subject)
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

fn title(document: &Value) -> String {
    let metadata = pod::metadata(document);
    match (pod::text(metadata, "namespace"), pod::name(metadata)) {
        ("", name) => name.to_owned(),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// Puts a value where a pointer of [`Kind::pointers`] leads; the last step may be missing.
fn put(document: &mut Value, pointer: &str, value: Value) {
    let Some((parent, key)) = pointer.rsplit_once('/') else { return };
    if let Some(parent) = document.pointer_mut(parent) {
        let fields: &mut Map<String, Value> = pod::object(parent);
        fields.insert(key.to_owned(), value);
    }
}
