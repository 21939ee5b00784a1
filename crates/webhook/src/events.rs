//! Writes Events on the owners, such as ReplicaSets, of pods that are refused or cause a warning, because the author of an
//! owner does not see the responses to the reviews of its pods.
//!
//! `endpoint` makes a [`Notice`] of an outcome, and `server` starts [`write_events`] as a task. A review never waits
//! for an Event: a notice for which the channel has no capacity is dropped.
#![expect(clippy::disallowed_methods, reason = "owns the clock of Events")]

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use kube::Client;
use podfacts::name::is_dns_label;
use serde_json::Value;
use serve::event::{self, Content, MAX_NAME, Origin};
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::review::{AdmissionOutcome, Review, Verdict};

/// The reporting component of the Events.
const COMPONENT: &str = "sidecar-injector";
/// The minimum interval between two Events with the same reason and message on one owner.
const EVENT_INTERVAL: Duration = Duration::from_secs(60);
/// The maximum number of Events within [`EVENT_INTERVAL`].
const MAX_EVENTS: usize = 256;
/// The maximum number of Events on one owner within [`EVENT_INTERVAL`], because messages may differ for each pod.
const MAX_OF_OWNER: usize = 4;
/// The capacity of the channel.
const CAPACITY: usize = 64;

/// The content of an Event on an owner.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Notice {
    owner: ObjectReference,
    reason: &'static str,
    /// The digest of the reason and of the message without the pod's name, by which equal Events on an owner are
    /// recognized.
    digest: u64,
    message: String,
}

/// Creates the channel between reviews and [`write_events`].
pub(super) fn channel() -> (Sender<Notice>, Receiver<Notice>) {
    mpsc::channel(CAPACITY)
}

/// Returns the notice for the pod's owner; `None` if the pod has no owner, if it is injected or skipped without a
/// warning, or in a dry run.
pub(super) fn notice(review: &Review, outcome: &AdmissionOutcome) -> Option<Notice> {
    let (reason, message) = match outcome.verdict {
        Verdict::Refuse => ("SidecarInjectionRefused", outcome.reason.clone()),
        Verdict::Skip if !outcome.warnings.is_empty() => ("SidecarNotInjected", outcome.warnings.join("; ")),
        Verdict::Patch(_) if !outcome.warnings.is_empty() => {
            ("SidecarInjectedWithWarnings", outcome.warnings.join("; "))
        }
        Verdict::Skip | Verdict::Patch(_) => return None,
    };
    if review.dry_run {
        return None;
    }
    let owner = owner(&review.object, &review.namespace)?;
    // This hasher has no random key, so all replicas compute the same digest.
    let mut hasher = DefaultHasher::new();
    (reason, &message).hash(&mut hasher);
    let message = format!("pod {}: {message}", review.subject());
    Some(Notice { owner, reason, digest: hasher.finish(), message })
}

/// Returns the controller in a pod's owner references. Checks the lengths of its fields, because the API server has not
/// validated the pod yet.
fn owner(pod: &Value, namespace: &str) -> Option<ObjectReference> {
    let references = pod["metadata"]["ownerReferences"].as_array()?;
    let controller = references.iter().find(|reference| reference["controller"] == true)?;
    let text = |key: &str| controller[key].as_str().filter(|text| (1..=MAX_NAME).contains(&text.len()));
    // The namespace becomes part of the path of a request to the API server, so only a valid name is accepted.
    if !is_dns_label(namespace) {
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

/// Writes Events until all senders are dropped.
pub(super) async fn write_events(client: Option<Client>, mut notices: Receiver<Notice>) {
    let mut recent = Recent::default();
    let instance = format!("{COMPONENT}.{:x}", Timestamp::now().as_nanosecond());
    while let Some(notice) = notices.recv().await {
        let Some(client) = &client else { continue };
        if !recent.admits(&notice, Instant::now()) {
            continue;
        }
        event::create(client, &event(notice, Timestamp::now(), &instance)).await;
    }
}

/// The Events within [`EVENT_INTERVAL`], by owner.
#[derive(Default)]
struct Recent(BTreeMap<[String; 3], BTreeMap<u64, Instant>>);

impl Recent {
    /// Whether an Event may be written at `now`. If so, records it as written.
    fn admits(&mut self, notice: &Notice, now: Instant) -> bool {
        self.0.retain(|_, events| {
            events.retain(|_, last| now.duration_since(*last) < EVENT_INTERVAL);
            !events.is_empty()
        });
        let all: usize = self.0.values().map(BTreeMap::len).sum();
        let ObjectReference { namespace, kind, uid, .. } = &notice.owner;
        let key = [namespace, kind, uid].map(|part| part.clone().unwrap_or_default());
        let of_owner = self.0.get(&key);
        let is_known =
            of_owner.is_some_and(|events| events.len() >= MAX_OF_OWNER || events.contains_key(&notice.digest));
        if all >= MAX_EVENTS || is_known {
            return false;
        }
        self.0.entry(key).or_default().insert(notice.digest, now);
        true
    }
}

/// Makes an Event. All replicas give it the same name in the same minute, so that only one of them can create it.
fn event(notice: Notice, now: Timestamp, instance: &str) -> Event {
    let Notice { owner, reason, digest, message } = notice;
    let uid: String = owner.uid.iter().flat_map(|uid| uid.chars()).filter(char::is_ascii_hexdigit).take(8).collect();
    let suffix = format!("{}.{:x}.{:08x}", uid.to_ascii_lowercase(), now.as_second() / 60, digest >> 32);
    let origin = Origin { component: COMPONENT, host: None, instance };
    event::warning(owner, origin, Content { reason, message: &message }, suffix.trim_start_matches('.'), now)
}

#[cfg(test)]
mod tests;
