//! Events on the owners of pods that get no sidecar: whoever owns a pod does not read the answer to its review.
//!
//! `answer` makes a [`Notice`] of an outcome, and `run` starts [`write_events`] as a task. A review never waits for an Event: what the
//! channel has no room for is dropped.
#![expect(clippy::disallowed_methods, reason = "owns the clock of Events")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::timeout;

use super::review::{AdmissionOutcome, Review, Verdict};

/// Who speaks.
const COMPONENT: &str = "sidecar-injector";
/// Between two Events on an owner.
const PAUSE: Duration = Duration::from_secs(60);
/// Owners that Events are written on in a [`PAUSE`], at most.
const OWNERS: usize = 256;
/// Events that wait to be written.
const WAITING: usize = 64;
/// Bytes of a message, as much as kubelets write.
const LONGEST: usize = 1024;
/// Bytes of a name in Kubernetes.
const LONGEST_NAME: usize = 253;
/// How long the API server may take.
const LIMIT: Duration = Duration::from_secs(10);

/// What an owner is told.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Notice {
    owner: ObjectReference,
    reason: &'static str,
    message: String,
}

/// Where notices go, and where [`write_events`] takes them from.
pub(super) fn channel() -> (Sender<Notice>, Receiver<Notice>) {
    mpsc::channel(WAITING)
}

/// What the owner of a review's pod is told; nothing where the pod is none's, or nothing is wrong with it, or in a dry run.
pub(super) fn notice(review: &Review, outcome: &AdmissionOutcome) -> Option<Notice> {
    let (reason, message) = match outcome.verdict {
        Verdict::Refuse => ("SidecarInjectionRefused", outcome.reason.clone()),
        Verdict::Skip if !outcome.warnings.is_empty() => ("SidecarNotInjected", outcome.warnings.join("; ")),
        Verdict::Skip | Verdict::Patch(_) => return None,
    };
    if review.dry_run {
        return None;
    }
    let owner = owner(&review.object, &review.namespace)?;
    let message = format!("pod {}: {message}", review.subject());
    Some(Notice { owner, reason, message: message[..message.floor_char_boundary(LONGEST)].to_owned() })
}

/// A pod's controller. The API server has checked nothing of the pod yet.
fn owner(pod: &Value, namespace: &str) -> Option<ObjectReference> {
    let references = pod["metadata"]["ownerReferences"].as_array()?;
    let controller = references.iter().find(|reference| reference["controller"] == true)?;
    let text = |key: &str| controller[key].as_str().filter(|text| (1..=LONGEST_NAME).contains(&text.len()));
    let is_label = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    // It becomes part of a path.
    if namespace.is_empty() || namespace.len() > 63 || !is_label(namespace) {
        return None;
    }
    Some(ObjectReference {
        api_version: Some(text("apiVersion")?.to_owned()),
        kind: Some(text("kind")?.to_owned()),
        name: Some(text("name")?.to_owned()),
        uid: Some(text("uid")?.to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ObjectReference::default()
    })
}

/// Writes Events until all senders are gone.
pub(super) async fn write_events(client: Option<Client>, mut notices: Receiver<Notice>) {
    let mut recent = Recent::default();
    let instance = format!("{COMPONENT}.{:x}", Timestamp::now().as_nanosecond());
    while let Some(notice) = notices.recv().await {
        let Some(client) = &client else { continue };
        if !recent.admits(&notice.owner, Instant::now()) {
            continue;
        }
        let event = event(notice, Timestamp::now(), &instance);
        let api = Api::<Event>::namespaced(client.clone(), event.metadata.namespace.as_deref().unwrap_or_default());
        match timeout(LIMIT, api.create(&PostParams::default(), &event)).await {
            Ok(Ok(_)) => {}
            // Another replica has said it.
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {}
            Ok(Err(error)) => tracing::warn!(%error, "an Event cannot be written"),
            Err(_) => tracing::warn!("an Event cannot be written: the API server does not answer"),
        }
    }
}

/// Owners that have been told of something a moment ago.
#[derive(Default)]
struct Recent(BTreeMap<[String; 3], Instant>);

impl Recent {
    /// Whether this owner may be told now.
    fn admits(&mut self, owner: &ObjectReference, now: Instant) -> bool {
        self.0.retain(|_, last| now.duration_since(*last) < PAUSE);
        let key = [&owner.namespace, &owner.kind, &owner.uid].map(|part| part.clone().unwrap_or_default());
        if self.0.len() >= OWNERS || self.0.contains_key(&key) {
            return false;
        }
        self.0.insert(key, now);
        true
    }
}

/// Its name is that of all replicas in this minute, of which one succeeds.
fn event(notice: Notice, now: Timestamp, instance: &str) -> Event {
    let Notice { owner, reason, message } = notice;
    let name = owner.name.as_deref().unwrap_or_default();
    let uid: String = owner.uid.iter().flat_map(|uid| uid.chars()).filter(char::is_ascii_hexdigit).take(8).collect();
    let suffix = format!(".{}.{:x}", uid.to_ascii_lowercase(), now.as_second() / 60);
    let stem = name[..name.floor_char_boundary(LONGEST_NAME - suffix.len())].trim_end_matches(['-', '.']);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{stem}{suffix}").replace("..", ".")),
            namespace: owner.namespace.clone(),
            ..ObjectMeta::default()
        },
        involved_object: owner,
        type_: Some("Warning".to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message),
        count: Some(1),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
        reporting_component: Some(COMPONENT.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests;
