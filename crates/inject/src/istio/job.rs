//! The metadata of a CronJob's job template. Istio's `kube-inject` treats it as the pod's metadata: it reads the pod's
//! settings from it, and writes labels and annotations into it that no pod gets.
//!
//! `documents` reads and writes the metadata of the pod template, which the CNI plugin and the webhook read, and also
//! writes what it adds there into the metadata of the job template. Pure.

use contract::annotation;
use gotemplate::Budget;
use serde_json::{Value, json};

use super::policy::{Decision, Policy, Reason};
use super::{Error, former};
use crate::pod;
use crate::workload::Kind;

/// The maps that an injection extends.
const MAPS: [&str; 2] = ["labels", "annotations"];

/// The metadata of a job template.
#[derive(Debug)]
pub(super) struct Job {
    /// The JSON pointer of the metadata in the document.
    pub(super) pointer: &'static str,
    pub(super) metadata: Value,
    /// Whether a former injection by Istio's `kube-inject` wrote into the metadata.
    is_istios: bool,
}

impl Job {
    /// Returns the metadata of a document's job template, if its kind has one. Adds the record of a former injection to the pod
    /// if only the job template has it.
    pub(super) fn of(document: &Value, kind: Kind, pod: &mut Value) -> Option<Self> {
        let pointer = kind.job_metadata()?;
        let metadata = document.pointer(pointer).cloned().unwrap_or_default();
        Some(Self { pointer, is_istios: recall(pod, &metadata), metadata })
    }
}

/// Adds the record of a former injection to a pod if only the metadata of its job template has it, because Istio's
/// `kube-inject` injected the cron job. Returns whether it did.
fn recall(pod: &mut Value, job: &Value) -> bool {
    let job = json!({"metadata": job});
    if pod::annotation(pod, annotation::STATUS).is_some() {
        return false;
    }
    let Some(status) = pod::annotation(&job, annotation::STATUS) else { return false };
    let overrides = pod::annotation(&job, annotation::OVERRIDES).map(|text| (annotation::OVERRIDES, text));
    let annotations = pod::annotations_mut(pod);
    for (name, text) in overrides.into_iter().chain([(annotation::STATUS, status)]) {
        annotations.insert(name.to_owned(), text.into());
    }
    true
}

/// Returns the decision to inject no sidecar that follows from the metadata of the job template, if the pod itself neither requests nor
/// declines one, as in Istio's `kube-inject`. `of_pod`: the decision about the pod itself.
pub(super) fn declines(policy: &Policy, of_pod: &Decision, job: &Value) -> Option<Decision> {
    let decision = policy.decide(&json!({"metadata": job}), "");
    (!matches!(of_pod.reason, Reason::Requested(..)) && !decision.inject).then_some(decision)
}

/// Returns the metadata of the job template with the labels and annotations that the injection of the pod `present`,
/// which became `after`, added. `workload`: the name of the CronJob.
///
/// # Errors
/// The record of a former injection cannot be read, or the budget is spent.
pub(super) fn extended(
    job: &Job,
    (present, after): (&Value, &Value),
    workload: &str,
    budget: &mut Budget,
) -> Result<Value, Error> {
    let before = former::original(present, workload, budget)?;
    let metadata = match job.is_istios {
        true => before_istios(&job.metadata, present, workload, budget)?,
        false => job.metadata.clone(),
    };
    let mut metadata = if metadata.is_object() { metadata } else { json!({}) };
    if !job.is_istios {
        take_away(&mut metadata, pod::metadata(present), pod::metadata(&before));
    }
    for which in MAPS {
        let present = pod::map(pod::metadata(&before), which);
        let added =
            pod::map(pod::metadata(after), which).iter().filter(|(key, value)| present.get(*key) != Some(*value));
        let added: Vec<_> = added.map(|(key, value)| (key.clone(), value.clone())).collect();
        if !added.is_empty() {
            pod::map_mut(&mut metadata, which).extend(added);
        }
    }
    Ok(metadata)
}

/// Returns the metadata of a job template before Istio's `kube-inject` changed it. `pod`: the injected pod.
fn before_istios(job: &Value, pod: &Value, workload: &str, budget: &mut Budget) -> Result<Value, Error> {
    // The former sidecar's variables, in the pod's spec, show which labels the injection wrote.
    let given = json!({"metadata": job, "spec": pod::spec(pod)});
    let mut before = former::original(&given, workload, budget)?.into_owned();
    let mut metadata = before.get_mut("metadata").map(Value::take).unwrap_or_default();
    // The record restores the pod's labels and annotations, some of which the job template may lack.
    for which in MAPS {
        let given = pod::map(job, which);
        if let Some(Value::Object(members)) = metadata.get_mut(which) {
            members.retain(|key, _| given.contains_key(key));
        }
    }
    Ok(metadata)
}

/// Removes from the metadata of a job template what a former injection wrote both there and into the pod's metadata. `present`: the pod's
/// metadata with these additions, `before`: without them.
fn take_away(job: &mut Value, present: &Value, before: &Value) {
    for which in MAPS {
        let [present, before] = [present, before].map(|metadata| pod::map(metadata, which));
        let is_written = |key: &str, value: &Value| present.get(key) == Some(value) && before.get(key) != Some(value);
        let Some(Value::Object(members)) = job.get_mut(which) else { continue };
        let count = members.len();
        members.retain(|key, value| !is_written(key, value));
        if members.is_empty() && count > 0 {
            pod::object(job).shift_remove(which);
        }
    }
}
