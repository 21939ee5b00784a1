//! Tracks broken pods by UID, with their history and the time of the next decision.
//!
//! Plain state without I/O: `run` passes watch events and outcomes in, and takes due decisions. The tracker holds at most
//! [`MAX_PODS`] pods, each once and only while the pod is broken.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::broken::Broken;
use super::budget::Budget;
use super::decide::{Acted, Action, Decision, History, Reason, decide};
use super::lineage::Lineages;
use super::settings::{Mode, RepairSettings, Symptom};
use super::step::{RepairOutcome, Step};

/// The maximum number of tracked pods. Additional broken pods are dropped; a new list finds them once fewer than half as
/// many pods are tracked.
const MAX_PODS: usize = 4096;
/// The back-off after the first failure; each further failure doubles it.
const MIN_BACK_OFF: Duration = Duration::from_millis(500);
/// The longest back-off, unless the server requests a longer delay.
const MAX_BACK_OFF: Duration = Duration::from_secs(300);
/// The longest delay that the server can request; a longer delay is reduced to this one.
const MAX_SERVER_DELAY: Duration = Duration::from_secs(3600);

#[derive(Debug)]
struct Entry {
    broken: Broken,
    /// The pod's number in the order of detection.
    arrival: u64,
    history: History,
    /// The time of the next decision; `None` if the next decision follows only from an event of the pod or the end of
    /// an action.
    due: Option<Duration>,
    acting: bool,
    /// Whether the pod is gone and tracked only until its action ends.
    gone: bool,
    last: Option<Decision>,
    /// The number of the last list that contained the pod.
    seen: u64,
}

#[derive(Debug)]
pub(super) struct Tracker {
    settings: RepairSettings,
    pods: BTreeMap<String, Entry>,
    /// Due pods by time, then by arrival.
    due: BTreeSet<(Duration, u64, String)>,
    /// The number of pods found so far.
    arrivals: u64,
    /// Whether the node redirects new pods, so that replacements work.
    ready: bool,
    budget: Budget,
    lineages: Lineages,
    list: u64,
    /// Whether a list has started and not ended.
    partial: bool,
    overflowed: bool,
}

impl Tracker {
    pub(super) fn new(settings: RepairSettings) -> Self {
        // Dapr's flag limits the watchdog's actions in all namespaces together, without a share for each namespace.
        let of_dapr_watchdog = matches!(settings.symptom, Symptom::NoSidecar);
        let budget = if of_dapr_watchdog { Budget::whole(settings.budget) } else { Budget::shared(settings.budget) };
        Self {
            settings,
            pods: BTreeMap::new(),
            due: BTreeSet::new(),
            arrivals: 0,
            ready: true,
            budget,
            lineages: Lineages::default(),
            list: 0,
            partial: false,
            overflowed: false,
        }
    }

    /// Returns the number of tracked pods.
    pub(super) fn len(&self) -> usize {
        self.pods.len()
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    pub(super) fn start_list(&mut self) {
        self.list += 1;
        self.partial = true;
        self.overflowed = false;
    }

    /// Ends a list; pods that it did not contain are gone.
    pub(super) fn end_list(&mut self) {
        self.partial = false;
        let gone: Vec<String> =
            self.pods.iter().filter(|(_, entry)| entry.seen < self.list).map(|(uid, _)| uid.clone()).collect();
        for uid in gone {
            self.remove(&uid);
        }
    }

    /// Adds or updates a broken pod.
    pub(super) fn insert(&mut self, broken: Broken, now: Duration) {
        if self.pods.len() >= MAX_PODS && !self.pods.contains_key(&broken.uid) {
            self.overflowed = true;
            return;
        }
        let (uid, arrivals) = (broken.uid.clone(), &mut self.arrivals);
        let fresh = || Entry {
            broken: broken.clone(),
            arrival: {
                *arrivals += 1;
                *arrivals
            },
            history: History::default(),
            due: None,
            acting: false,
            gone: false,
            last: None,
            seen: self.list,
        };
        let entry = self.pods.entry(uid.clone()).or_insert_with(fresh);
        entry.broken = broken;
        entry.gone = false;
        entry.seen = self.list;
        self.schedule(&uid, Some(now));
    }

    /// Removes a pod that is no longer broken. During an action it stays tracked, so that the action is not repeated.
    pub(super) fn remove(&mut self, uid: &str) {
        self.schedule(uid, None);
        match self.pods.get_mut(uid) {
            Some(entry) if entry.acting => entry.gone = true,
            _ => {
                self.pods.remove(uid);
            }
        }
    }

    /// Updates the node's readiness and reschedules the pods that wait for it.
    pub(super) fn set_node_ready(&mut self, ready: bool, now: Duration) {
        if std::mem::replace(&mut self.ready, ready) || !ready {
            return;
        }
        let waiting = |entry: &Entry| entry.last == Some(Decision::Nothing(Reason::NodeNotReady));
        let uids: Vec<String> =
            self.pods.iter().filter(|(_, entry)| waiting(entry)).map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            self.schedule(&uid, Some(now));
        }
    }

    /// Whether pods were dropped at the limit and a new list would track them: fewer than half of the limit are tracked.
    pub(super) fn needs_relist(&self) -> bool {
        self.overflowed && self.pods.len() < MAX_PODS / 2
    }

    /// Returns the time of the next due decision.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.due.first().filter(|_| !self.awaits_list()).map(|(due, ..)| *due)
    }

    /// Whether decisions wait for the end of the list: a replacement is recognized only if all broken pods of its
    /// controller are known.
    fn awaits_list(&self) -> bool {
        self.partial && self.settings.mode == Mode::DeleteOrReport
    }

    /// Takes the decision about the next due pod. An action is recorded as started.
    pub(super) fn take(&mut self, now: Duration) -> Option<Step> {
        let next = self.due.first().filter(|(due, ..)| *due <= now && !self.awaits_list())?.clone();
        self.due.remove(&next);
        let (.., uid) = next;
        let entry = self.pods.get_mut(&uid)?;
        entry.due = None;
        let earliest = self.budget.earliest(&entry.broken.pod.namespace, now);
        let lineage = entry.broken.lineage.as_deref();
        entry.history = History {
            node_not_ready: !self.ready,
            replacement: lineage.is_some_and(|lineage| self.lineages.is_replacement(lineage, now)),
            controller_back_off: lineage.map_or(Duration::ZERO, |lineage| self.lineages.not_before(lineage, now)),
            namespace_share: earliest.share,
            budget: earliest.total,
            ..entry.history
        };
        let decision = decide(&entry.broken, &entry.history, &self.settings, now);
        let is_new = entry.last.replace(timeless(decision)) != Some(timeless(decision));
        let step =
            Step { broken: entry.broken.clone(), decision, is_first_attempt: entry.history.failures == 0, is_new };
        match decision {
            Decision::Later(when, _) => self.schedule(&uid, Some(when)),
            Decision::Nothing(_) => {}
            Decision::Act(action) => {
                entry.acting = true;
                if !self.settings.dry_run {
                    self.budget.spend(&step.broken.pod.namespace, now);
                    if let (Action::Delete | Action::Evict, Some(lineage)) = (action, &step.broken.lineage) {
                        let all = self.pods.values().filter_map(|entry| entry.broken.lineage.as_deref());
                        self.lineages.record_end(lineage, all, now);
                    }
                }
            }
        }
        Some(step)
    }

    /// Records the outcome of an action.
    pub(super) fn finish(&mut self, step: &Step, outcome: &RepairOutcome, now: Duration) {
        let Some(entry) = self.pods.get_mut(&step.broken.uid) else { return };
        entry.acting = false;
        if entry.gone {
            return self.remove(&step.broken.uid);
        }
        let newer = entry.broken.version != step.broken.version;
        let history = &mut entry.history;
        let failed = |history: &mut History, wait: Option<Duration>| {
            history.failures = history.failures.saturating_add(1);
            history.not_before = now
                + wait.map_or_else(|| back_off(history.failures), |wait| wait.clamp(MIN_BACK_OFF, MAX_SERVER_DELAY));
        };
        match outcome {
            RepairOutcome::Ended => history.acted = Some(Acted::Ended),
            RepairOutcome::Labelled => history.acted = Some(Acted::Labelled),
            RepairOutcome::Hopeless(_) => history.acted = Some(Acted::Hopeless),
            RepairOutcome::Reprogrammed { restarts, .. } => {
                *history = History { reprogrammed: Some(*restarts), ..History::default() };
            }
            RepairOutcome::DryRun => history.acted = Some(Acted::DryRun),
            RepairOutcome::Reported => history.acted = Some(Acted::Reported),
            RepairOutcome::Gone => return self.remove(&step.broken.uid),
            // The newer version is already known, so the conflict is not counted as a failure.
            RepairOutcome::Conflict if newer => {}
            RepairOutcome::Conflict => failed(history, None),
            RepairOutcome::Failed { wait, .. } => failed(history, *wait),
        }
        self.schedule(&step.broken.uid, Some(now));
    }

    fn schedule(&mut self, uid: &str, when: Option<Duration>) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        if let Some(due) = entry.due.take() {
            self.due.remove(&(due, entry.arrival, uid.to_owned()));
        }
        if let Some(when) = when
            && !entry.acting
        {
            entry.due = Some(when);
            self.due.insert((when, entry.arrival, uid.to_owned()));
        }
    }
}

fn back_off(failures: u32) -> Duration {
    MIN_BACK_OFF.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(MAX_BACK_OFF)
}

/// Removes the time for comparisons: a new delay for the same reason is not a change.
fn timeless(decision: Decision) -> Decision {
    match decision {
        Decision::Later(_, reason) => Decision::Later(Duration::ZERO, reason),
        decision => decision,
    }
}

#[cfg(test)]
mod tests;
