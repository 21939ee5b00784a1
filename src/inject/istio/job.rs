//! The metadata of a cron job's job template. Istio's `kube-inject` takes them for the pod's: it reads the pod's
//! settings there and writes labels and annotations there, which no pod gets.
//!
//! `documents` reads and writes the metadata of the pod template, by which the CNI plugin and the webhook know the pod,
//! and writes what it adds to them into those of the job template, too. Pure.

use gotemplate::Budget;
use serde_json::{Value, json};

use super::policy::{Decision, Policy, Reason};
use super::{Error, former};
use crate::contract::annotation;
use crate::inject::pod;

/// The maps that an injection extends.
const MAPS: [&str; 2] = ["labels", "annotations"];

/// Adds the record of a former injection to a pod if only the metadata of its job template have it, because Istio's
/// `kube-inject` injected the cron job.
pub(super) fn recall(pod: &mut Value, job: &Value) {
    let job = json!({"metadata": job});
    if pod::annotation(pod, annotation::STATUS).is_some() {
        return;
    }
    let Some(status) = pod::annotation(&job, annotation::STATUS) else { return };
    let overrides = pod::annotation(&job, annotation::OVERRIDES).map(|text| (annotation::OVERRIDES, text));
    let annotations = pod::annotations_mut(pod);
    for (name, text) in overrides.into_iter().chain([(annotation::STATUS, status)]) {
        annotations.insert(name.to_owned(), text.into());
    }
}

/// Returns the decision by which the metadata of the job template decline a sidecar for a pod that neither requests nor declines
/// one, as in Istio's `kube-inject`. `of_pod`: the decision about the pod itself.
pub(super) fn declines(policy: &Policy, of_pod: &Decision, job: &Value) -> Option<Decision> {
    let decision = policy.decide(&json!({"metadata": job}), "");
    (!matches!(of_pod.reason, Reason::Requested(..)) && !decision.inject).then_some(decision)
}

/// Returns the metadata of the job template with the labels and annotations that the injection of the pod `before`
/// added. `workload`: the name of the cron job.
///
/// # Errors
/// The record of a former injection cannot be read, or the budget is spent.
pub(super) fn extended(
    job: &Value,
    (before, after): (&Value, &Value),
    workload: &str,
    budget: &mut Budget,
) -> Result<Value, Error> {
    // The variables of the former sidecar tell which labels it had.
    let given = json!({"metadata": job, "spec": pod::spec(before)});
    let before = former::original(before, workload, budget)?;
    let mut job = former::original(&given, workload, budget)?.into_owned();
    let metadata = job.get_mut("metadata").map(Value::take).unwrap_or_default();
    let mut metadata = if metadata.is_object() { metadata } else { json!({}) };
    // The record is the pod's, which may have members that the job template lacks.
    for which in MAPS {
        let given = pod::map(pod::metadata(&given), which);
        if let Some(Value::Object(members)) = metadata.get_mut(which) {
            members.retain(|key, _| given.contains_key(key));
        }
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
