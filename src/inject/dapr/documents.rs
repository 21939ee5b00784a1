//! Workloads from files: their pods become in the document what admission would make of them.
//!
//! `istio-cnictl` calls it. What a workload's pods will be called nobody knows yet; for those that share a name but for its
//! end, the app id is made of the workload's name, as it is at admission.

use serde_json::{Value, json};

use super::{Decision, Facts, Request, Settings, User, review};
use crate::inject::patch::{Misfit, apply};
use crate::inject::workload::{self, Kind};

/// What was decided about a workload's pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Its kind.
    pub kind: String,
    /// `namespace/name`, or the name where it has no namespace.
    pub name: String,
    /// What becomes of its pods, and why.
    pub decision: Decision,
    /// For whoever wrote it.
    pub warnings: Vec<String>,
}

/// Injects the workload that a document is, or those that it lists; whether that has changed it. Whoever asks by hand may
/// have a sidecar. `namespace`: where workloads go that name none.
///
/// # Errors
/// A patch does not fit its pod, which is a fault of this program.
pub fn inject_document(
    document: &mut Value,
    namespace: &str,
    settings: &Settings,
    facts: &Facts<'_>,
    told: &mut Vec<Told>,
) -> Result<bool, Misfit> {
    let mut changed = false;
    workload::each(document, &mut |document: &mut Value, kind| {
        let Some(subject) = subject(document, kind) else { return Ok(()) };
        let namespace = subject["metadata"]["namespace"].as_str().unwrap_or(namespace);
        let outcome = review(&by_hand(&subject, namespace), settings, facts);
        if matches!(outcome.decision, Decision::Inject { .. }) {
            let mut pod = apply(subject, &outcome.patch)?;
            give_back(document, kind, &mut pod);
            changed = true;
        }
        let (kind, name) = workload::title(document);
        told.push(Told { kind, name, decision: outcome.decision, warnings: outcome.warnings });
        Ok(())
    })?;
    Ok(changed)
}

fn by_hand<'a>(pod: &'a Value, namespace: &'a str) -> Request<'a> {
    Request { kind: "Pod", namespace, user: User::master(), object: Some(pod) }
}

/// The pod that a workload makes, with as much of its name as is known.
fn subject(document: &Value, kind: Kind) -> Option<Value> {
    let mut pod = workload::pod(document, kind.template())?;
    if kind != Kind::Pod {
        let metadata = &document["metadata"];
        pod["metadata"]["namespace"] = metadata["namespace"].clone();
        // Pods of a StatefulSet have names of their own, each another app id: no template can say which.
        if let (Some(name), false) = (metadata["name"].as_str(), document["kind"] == "StatefulSet") {
            pod["metadata"]["generateName"] = format!("{name}-").into();
        }
    }
    Some(pod)
}

/// Puts the pod back into its workload, without the name that it was asked about by.
fn give_back(document: &mut Value, kind: Kind, pod: &mut Value) {
    let (metadata, spec) = kind.template();
    if kind != Kind::Pod
        && let Some(members) = pod["metadata"].as_object_mut()
    {
        let own = document.pointer(metadata).cloned().unwrap_or_else(|| json!({}));
        for key in ["namespace", "generateName"] {
            match own.get(key) {
                Some(value) => drop(members.insert(key.to_owned(), value.clone())),
                None => drop(members.shift_remove(key)),
            }
        }
    }
    workload::put(document, spec, pod["spec"].take());
    workload::put(document, metadata, pod["metadata"].take());
}
