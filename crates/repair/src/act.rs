//! Performs an action through the API or in the pod's netns, then counts and logs it and records an event.

#![expect(clippy::disallowed_methods, reason = "owns the clock of Events")]

use std::time::Duration;

use contract::diagnostics::chain;
use podfacts::PodName;
use serve::event::{Content, Origin};

use super::broken::{Broken, detect};
use super::calls::{Calls, Error};
use super::decide::{Action, Decision, Reason};
use super::event::event;
use super::metrics::{ActionResult, Metrics};
use super::pod::Pod;
use super::reprogram::ReprogramError;
use super::settings::{RepairSettings, Symptom};
use super::step::{RepairOutcome, Step};

#[derive(Clone)]
pub(super) struct Actor {
    pub(super) calls: Calls,
    pub(super) settings: std::sync::Arc<RepairSettings>,
    pub(super) metrics: Metrics,
}

/// The reason and message parts of an event.
struct EventText {
    /// The pod's defect.
    found: &'static str,
    reason: &'static str,
    done: &'static str,
    failed: &'static str,
}

fn event_text(symptom: &Symptom, action: Action) -> EventText {
    let found = match symptom {
        Symptom::Validation(_) => "pod detected as broken",
        Symptom::NoSidecar => "pod requests Dapr's sidecar but lacks it",
    };
    let (reason, done, failed) = match (symptom, action) {
        (Symptom::NoSidecar, Action::Delete) => ("DeletePodWithoutSidecar", "deleted", "delete"),
        (Symptom::NoSidecar, Action::Report(reason)) => ("PodWithoutSidecar", inaction_text(reason), "tell"),
        (_, Action::Evict) => ("EvictBrokenPod", "evicted", "evict"),
        (_, Action::Delete) => ("DeleteBrokenPod", "deleted", "delete"),
        (_, Action::Label) => ("LabelBrokenPod", "labelled", "label"),
        (_, Action::Reprogram) => ("RepairBrokenPod", "redirection set up", "set up redirection"),
        (_, Action::Report(reason)) => ("BrokenPod", inaction_text(reason), "tell"),
    };
    EventText { found, reason, done, failed }
}

/// Returns the `source.component` of events.
fn component(symptom: &Symptom) -> &'static str {
    match symptom {
        Symptom::Validation(_) => "cni-repair",
        Symptom::NoSidecar => "dapr-watchdog",
    }
}

/// Describes why no action is taken, for event messages.
fn inaction_text(reason: Reason) -> &'static str {
    match reason {
        Reason::Standalone => "no action: no controller would replace it",
        Reason::StaticPod => "no action: a static pod is not restarted by a deletion in the API",
        Reason::Replacement => {
            "no action: it replaces a pod that was deleted for the same reason; check the injector's log and webhook"
        }
        Reason::NoRetry => "no action: its validation container is never restarted",
        _ => "no action",
    }
}

impl Actor {
    /// Performs and reports an action. Errors are part of the outcome.
    pub(super) async fn act(&self, step: &Step, action: Action) -> RepairOutcome {
        if self.settings.dry_run {
            tracing::info!(pod = %step.broken.pod, action = action.as_str(), "dry run: no action on broken pod");
            return RepairOutcome::DryRun;
        }
        let outcome = self.attempt(&step.broken, action).await;
        self.report(step, action, &outcome).await;
        outcome
    }

    async fn attempt(&self, broken: &Broken, action: Action) -> RepairOutcome {
        let RepairSettings { label_key, label_value, .. } = self.settings.as_ref();
        let (done, outcome) = match action {
            Action::Evict => (self.calls.evict(broken).await, RepairOutcome::Ended),
            Action::Delete => (self.calls.delete(broken).await, RepairOutcome::Ended),
            Action::Label => (self.calls.label(broken, label_key, label_value).await, RepairOutcome::Labelled),
            Action::Reprogram => return self.reprogram(broken).await,
            Action::Report(_) => return RepairOutcome::Reported,
        };
        done.map_or_else(|error| failure(&error), |()| outcome)
    }

    /// Programs the rules in the pod's netns. Reads the pod again first, because watched pods contain only the names of
    /// containers, and another pod may have the same name by now.
    async fn reprogram(&self, known: &Broken) -> RepairOutcome {
        let bytes = match self.calls.get(known).await {
            Ok(bytes) => bytes,
            Err(error) => return failure(&error),
        };
        let Ok(pod) = serde_json::from_slice::<Pod>(&bytes) else {
            return RepairOutcome::Failed { error: "the API server sends no pod".to_owned(), wait: None };
        };
        let broken = match detect(&pod, &self.settings) {
            Ok(broken) if broken.uid == known.uid && !broken.deleting => broken,
            _ => return RepairOutcome::Gone,
        };
        let restarts = broken.restarts;
        let Some(reprogram) = self.settings.reprogram.clone() else {
            return RepairOutcome::Hopeless("this program does not repair pods in place".to_owned());
        };
        let work = tokio::task::spawn_blocking(move || reprogram.reprogram(&broken.pod, &broken.ips, &bytes));
        match work.await {
            Ok(Ok(change)) => RepairOutcome::Reprogrammed { restarts, change },
            Ok(Err(ReprogramError::Hopeless(error))) => RepairOutcome::Hopeless(chain(error.as_ref())),
            Ok(Err(ReprogramError::Failed(error))) => {
                RepairOutcome::Failed { error: chain(error.as_ref()), wait: None }
            }
            Err(error) => RepairOutcome::Failed { error: error.to_string(), wait: None },
        }
    }

    /// Counts and logs the outcome, and records an event. Repeated failures of an action cause no further event,
    /// because a disruption budget may block an eviction for hours.
    async fn report(&self, step: &Step, action: Action, outcome: &RepairOutcome) {
        let (pod, text) = (&step.broken.pod, event_text(&self.settings.symptom, action));
        let message = match outcome {
            RepairOutcome::Ended
            | RepairOutcome::Labelled
            | RepairOutcome::Reprogrammed { .. }
            | RepairOutcome::Reported => {
                self.metrics.acted(pod, action.as_str(), ActionResult::Success);
                let change = match outcome {
                    RepairOutcome::Reprogrammed { change, .. } => Some(*change),
                    _ => None,
                };
                tracing::info!(%pod, action = action.as_str(), change, "acted on broken pod");
                format!("{}, {}", text.found, text.done)
            }
            RepairOutcome::Gone => return self.report_change(pod, action, "gone"),
            RepairOutcome::Conflict => return self.report_change(pod, action, "conflict"),
            RepairOutcome::DryRun => return,
            RepairOutcome::Hopeless(error) | RepairOutcome::Failed { error, .. } => {
                self.metrics.acted(pod, action.as_str(), ActionResult::Fail);
                tracing::warn!(%pod, action = action.as_str(), %error, "cannot act on broken pod");
                if !step.is_first_attempt {
                    return;
                }
                format!("{}, but failed to {}: {error}", text.found, text.failed)
            }
        };
        self.record(&step.broken, text.reason, &message).await;
    }

    fn report_change(&self, pod: &PodName, action: Action, outcome: &'static str) {
        self.metrics.acted(pod, action.as_str(), ActionResult::Skip);
        tracing::info!(%pod, action = action.as_str(), outcome, "broken pod changed before the action");
    }

    /// Records an event about a pod that is not repaired, with the remaining delay if there is one.
    pub(super) async fn record_inaction(&self, step: &Step, reason: Reason, now: Duration) {
        let message = match step.decision {
            Decision::Later(until, Reason::ControllerBackOff) => format!(
                "pod detected as broken, no action for {} s: it replaces a pod that was evicted or deleted for the same reason",
                until.saturating_sub(now).as_secs()
            ),
            Decision::Nothing(Reason::Skipped(reason)) => {
                format!("pod detected as broken, no action: the plugin skips it, because {}", reason.meaning())
            }
            _ => format!("pod detected as broken, {}", inaction_text(reason)),
        };
        self.record(&step.broken, "BrokenPodLeft", &message).await;
    }

    async fn record(&self, broken: &Broken, reason: &str, message: &str) {
        let pod = &broken.pod;
        let node = if self.settings.node.is_empty() { &broken.node } else { &self.settings.node };
        let origin = Origin { component: component(&self.settings.symptom), host: Some(node), instance: node };
        let event = event(broken, origin, Content { reason, message }, jiff::Timestamp::now());
        if let Err(error) = self.calls.create_event(&pod.namespace, &event).await {
            tracing::warn!(%pod, error = chain(&error), "the event cannot be created");
        }
    }
}

fn failure(error: &Error) -> RepairOutcome {
    match error {
        Error::Refused { status: 404, .. } => RepairOutcome::Gone,
        Error::Refused { status: 409, .. } => RepairOutcome::Conflict,
        Error::Refused { wait, .. } => RepairOutcome::Failed { error: chain(error), wait: *wait },
        Error::Unreachable { .. } | Error::TimedOut { .. } => RepairOutcome::Failed { error: chain(error), wait: None },
    }
}
