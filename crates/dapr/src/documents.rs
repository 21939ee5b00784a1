//! Injects workloads from files as admission would inject their pods.
//!
//! `istio-cnictl` calls this module. A workload in a file has no pods yet, so their names are unknown. If they will
//! differ only in a generated suffix, the app id is derived from the workload's name, as at admission.

use serde_json::{Value, json};

use super::{Decision, Facts, Request, Settings, User, review};
use inject::workload::{self, Kind};
use inject::{PatchError, apply};

/// The decision about a workload's pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadReview {
    pub kind: String,
    /// `namespace/name`, or the name without a namespace.
    pub name: String,
    pub decision: Decision,
    pub warnings: Vec<String>,
}

/// Injects a workload, or each workload of a list, and returns whether the document changed. The user is treated as a
/// cluster administrator, who may create pods with a sidecar. `namespace` is the namespace of workloads without one.
///
/// # Errors
/// A patch does not apply to its pod, which is a bug.
pub fn inject_document(
    document: &mut Value,
    namespace: &str,
    settings: &Settings,
    facts: &Facts<'_>,
    reviews: &mut Vec<WorkloadReview>,
) -> Result<bool, PatchError> {
    let mut changed = false;
    workload::for_each(document, &mut |document: &mut Value, kind| {
        let Some(subject) = subject(document, kind) else { return Ok(()) };
        let namespace = subject["metadata"]["namespace"].as_str().unwrap_or(namespace);
        let outcome = review(&manual_request(&subject, namespace), settings, facts);
        if matches!(outcome.decision, Decision::Inject { .. }) {
            let mut pod = apply(subject, &outcome.patch)?;
            put_back(document, kind, &mut pod);
            changed = true;
        }
        let (kind, name) = workload::kind_and_name(document);
        reviews.push(WorkloadReview { kind, name, decision: outcome.decision, warnings: outcome.warnings });
        Ok(())
    })?;
    Ok(changed)
}

fn manual_request<'a>(pod: &'a Value, namespace: &'a str) -> Request<'a> {
    Request { kind: "Pod", namespace, user: User::master(), object: Some(pod) }
}

/// Returns the workload's pod. Its `generateName` is the workload's name with a dash, as for pods whose names a
/// controller generates.
fn subject(document: &Value, kind: Kind) -> Option<Value> {
    let mut pod = workload::pod(document, kind.template())?;
    if kind != Kind::Pod {
        let metadata = &document["metadata"];
        pod["metadata"]["namespace"] = metadata["namespace"].clone();
        // The pods of a StatefulSet have different names and so different app ids, which one template cannot hold.
        if let (Some(name), false) = (metadata["name"].as_str(), document["kind"] == "StatefulSet") {
            pod["metadata"]["generateName"] = format!("{name}-").into();
        }
    }
    Some(pod)
}

/// Replaces the workload's pod by the injected one, without the name and the namespace that were added for the review.
fn put_back(document: &mut Value, kind: Kind, pod: &mut Value) {
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
