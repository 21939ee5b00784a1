//! Carries out a decision: one request, or one visit of a netns; then counts it, logs it and tells it as an event.

use std::time::Duration;

use super::broken::{Broken, detect};
use super::calls::{Calls, Error};
use super::decide::{Action, Decision, Reason};
use super::event::{self, event};
use super::metrics::{Counted, Metrics};
use super::netns;
use super::pod::Pod;
use super::settings::{Settings, Symptom};
use super::step::{Outcome, Step};
use crate::diagnostics::chain;

/// What acting needs.
#[derive(Clone)]
pub(super) struct Actor {
    pub(super) calls: Calls,
    pub(super) settings: std::sync::Arc<Settings>,
    pub(super) metrics: Metrics,
}

/// What people are told of an action: an event's reason, and its message.
struct Words {
    /// What the pod is.
    found: &'static str,
    reason: &'static str,
    done: &'static str,
    failed: &'static str,
}

fn words(symptom: &Symptom, action: Action) -> Words {
    let found = match symptom {
        Symptom::Validation(_) => "pod detected as broken",
        Symptom::NoSidecar => "pod asks for Dapr's sidecar and has none",
    };
    let (reason, done, failed) = match (symptom, action) {
        (Symptom::NoSidecar, Action::Delete) => ("DeletePodWithoutSidecar", "deleted", "delete"),
        (Symptom::NoSidecar, Action::Report(reason)) => ("PodWithoutSidecar", left_alone(reason), "tell"),
        (_, Action::Evict) => ("EvictBrokenPod", "evicted", "evict"),
        (_, Action::Delete) => ("DeleteBrokenPod", "deleted", "delete"),
        (_, Action::Label) => ("LabelBrokenPod", "labelled", "label"),
        (_, Action::Reprogram) => ("RepairBrokenPod", "redirection set up", "set up redirection"),
        (_, Action::Report(reason)) => ("BrokenPod", left_alone(reason), "tell"),
    };
    Words { found, reason, done, failed }
}

/// Who speaks in events.
fn component(symptom: &Symptom) -> &'static str {
    match symptom {
        Symptom::Validation(_) => "cni-repair",
        Symptom::NoSidecar => "dapr-watchdog",
    }
}

/// Why nothing else is done, in words for whoever reads events.
fn left_alone(reason: Reason) -> &'static str {
    match reason {
        Reason::Standalone => "left as it is: no controller would replace it",
        Reason::StaticPod => "left as it is: it is made from a file on its node",
        Reason::Replacement => {
            "left as it is: it replaces one that was deleted for the same; look at the injector's log and webhook"
        }
        Reason::NoRetry => "left as it is: its validation is never run again",
        _ => "left as it is",
    }
}

impl Actor {
    /// Does what was decided. Whatever happens is in the outcome.
    pub(super) async fn act(&self, step: &Step, action: Action) -> Outcome {
        if self.settings.dry_run {
            tracing::info!(pod = %step.broken.pod, action = action.as_str(), "dry run: broken pod is left as it is");
            return Outcome::DryRun;
        }
        let outcome = self.attempt(&step.broken, action).await;
        self.report(step, action, &outcome).await;
        outcome
    }

    async fn attempt(&self, broken: &Broken, action: Action) -> Outcome {
        let Settings { label_key, label_value, .. } = self.settings.as_ref();
        let (done, outcome) = match action {
            Action::Evict => (self.calls.evict(broken).await, Outcome::Ended),
            Action::Delete => (self.calls.delete(broken).await, Outcome::Ended),
            Action::Label => (self.calls.label(broken, label_key, label_value).await, Outcome::Labelled),
            Action::Reprogram => return self.reprogram(broken).await,
            Action::Report(_) => return Outcome::Reported,
        };
        done.map_or_else(|error| refused(&error), |()| outcome)
    }

    /// The pod is read anew: the watch carries no containers, and what was broken a moment ago may be another pod now.
    async fn reprogram(&self, known: &Broken) -> Outcome {
        let bytes = match self.calls.get(known).await {
            Ok(bytes) => bytes,
            Err(error) => return refused(&error),
        };
        let Ok(pod) = serde_json::from_slice::<Pod>(&bytes) else {
            return Outcome::Failed { error: "the API server sends no pod".to_owned(), wait: None };
        };
        let broken = match detect(&pod, &self.settings) {
            Ok(broken) if broken.uid == known.uid && !broken.deleting => broken,
            _ => return Outcome::Gone,
        };
        let (restarts, settings) = (broken.restarts, self.settings.clone());
        let work = tokio::task::spawn_blocking(move || netns::reprogram(&broken, &bytes, &settings));
        match work.await {
            Ok(Ok(done)) => Outcome::Reprogrammed { restarts, done },
            Ok(Err(error)) if error.is_hopeless() => Outcome::Hopeless(chain(&error)),
            Ok(Err(error)) => Outcome::Failed { error: chain(&error), wait: None },
            Err(error) => Outcome::Failed { error: error.to_string(), wait: None },
        }
    }

    /// Later failures of the same action are counted and logged, but not told again: a pod may be held for hours by a
    /// disruption budget.
    async fn report(&self, step: &Step, action: Action, outcome: &Outcome) {
        let (pod, words) = (&step.broken.pod, words(&self.settings.symptom, action));
        let message = match outcome {
            Outcome::Ended | Outcome::Labelled | Outcome::Reprogrammed { .. } | Outcome::Reported => {
                self.metrics.acted(action.as_str(), Counted::Success);
                let change = if let Outcome::Reprogrammed { done, .. } = outcome { done.change.as_str() } else { "" };
                tracing::info!(%pod, action = action.as_str(), change, "acted on broken pod");
                format!("{}, {}", words.found, words.done)
            }
            Outcome::Gone | Outcome::Conflict | Outcome::DryRun => {
                self.metrics.acted(action.as_str(), Counted::Skip);
                return tracing::info!(%pod, action = action.as_str(), ?outcome, "broken pod has changed meanwhile");
            }
            Outcome::Hopeless(error) | Outcome::Failed { error, .. } => {
                self.metrics.acted(action.as_str(), Counted::Fail);
                tracing::warn!(%pod, action = action.as_str(), %error, "cannot act on broken pod");
                if !step.first {
                    return;
                }
                format!("{}, but failed to {}: {error}", words.found, words.failed)
            }
        };
        self.tell(&step.broken, words.reason, &message).await;
    }

    /// Tells as an event that a pod is left as it is, and until when if that is known.
    pub(super) async fn tell_left(&self, step: &Step, reason: Reason, now: Duration) {
        let message = match step.decision {
            Decision::Later(until, Reason::ControllerBackOff) => format!(
                "pod detected as broken, left as it is for {} s: it replaces a pod that was evicted or deleted for the same",
                until.saturating_sub(now).as_secs()
            ),
            _ => format!("pod detected as broken, {}", left_alone(reason)),
        };
        self.tell(&step.broken, "BrokenPodLeft", &message).await;
    }

    async fn tell(&self, broken: &Broken, reason: &str, message: &str) {
        let pod = &broken.pod;
        let node = if self.settings.node.is_empty() { &broken.node } else { &self.settings.node };
        let speaker = event::Speaker { component: component(&self.settings.symptom), node };
        let event = event(broken, speaker, reason, message, jiff::Timestamp::now());
        if let Err(error) = self.calls.tell(&pod.namespace, &event).await {
            tracing::warn!(%pod, error = chain(&error), "no event could be written");
        }
    }
}

fn refused(error: &Error) -> Outcome {
    match error {
        Error::Refused { status: 404, .. } => Outcome::Gone,
        Error::Refused { status: 409, .. } => Outcome::Conflict,
        Error::Refused { wait, .. } => Outcome::Failed { error: chain(error), wait: *wait },
        Error::Unreachable { .. } | Error::TimedOut { .. } => Outcome::Failed { error: chain(error), wait: None },
    }
}
