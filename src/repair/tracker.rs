//! The broken pods that are known, each by its UID, what was done about them, and when each is due.
//!
//! A plain value: `run` tells it what the watch says and how actions ended, and asks what is to be done now. It holds
//! no pod twice, no sound pod, and no more than [`MOST`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::broken::Broken;
use super::budget::Budget;
use super::decide::{Acted, Action, Decision, History, Reason, decide};
use super::lineage::Lineages;
use super::settings::{Mode, Settings, Symptom};
use super::step::{Outcome, Step};

/// Pods that are known at a time. What is beyond is found again by a new list, once there is room.
const MOST: usize = 4096;
/// After the first failure; doubled with each further one.
const SHORTEST: Duration = Duration::from_millis(500);
/// Between two tries, at most, unless the server asks for more.
const LONGEST: Duration = Duration::from_secs(300);
/// A server may ask for so much, at most.
const PATIENCE: Duration = Duration::from_secs(3600);

#[derive(Debug)]
struct Entry {
    broken: Broken,
    /// Which of all pods it was to be found.
    arrival: u64,
    history: History,
    /// When it is to be looked at; none: not before something happens to it.
    due: Option<Duration>,
    acting: bool,
    /// It is known only because something is being done about it.
    gone: bool,
    /// The last decision, without its time.
    last: Option<Decision>,
    /// The list in which it was seen last.
    seen: u64,
}

#[derive(Debug)]
pub(super) struct Tracker {
    settings: Settings,
    pods: BTreeMap<String, Entry>,
    /// By time; of those that are due together, who came first goes first.
    due: BTreeSet<(Duration, u64, String)>,
    /// How many pods have been found so far.
    arrivals: u64,
    /// Whether the node is ready for what would replace pods.
    ready: bool,
    budget: Budget,
    lineages: Lineages,
    list: u64,
    /// A list has begun and not ended.
    partial: bool,
    overflowed: bool,
}

impl Tracker {
    pub(super) fn new(settings: Settings) -> Self {
        // The watchdog's limit is Dapr's flag, which knows no namespaces.
        let of_sidecars = matches!(settings.symptom, Symptom::NoSidecar);
        let budget = if of_sidecars { Budget::whole(settings.budget) } else { Budget::shared(settings.budget) };
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

    /// How many pods are known to be broken.
    pub(super) fn len(&self) -> usize {
        self.pods.len()
    }

    /// Whether a pod is known to be broken.
    pub(super) fn knows(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    /// A list begins.
    pub(super) fn listing(&mut self) {
        self.list += 1;
        self.partial = true;
        self.overflowed = false;
    }

    /// A list has ended: what it did not name is gone.
    pub(super) fn listed(&mut self) {
        self.partial = false;
        let gone: Vec<String> =
            self.pods.iter().filter(|(_, entry)| entry.seen < self.list).map(|(uid, _)| uid.clone()).collect();
        for uid in gone {
            self.forget(&uid);
        }
    }

    /// A pod is broken, or still is.
    pub(super) fn broken(&mut self, broken: Broken, now: Duration) {
        if self.pods.len() >= MOST && !self.pods.contains_key(&broken.uid) {
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

    /// A pod is sound, or has ended. While something is done about it, it stays known, so that nothing is done twice.
    pub(super) fn forget(&mut self, uid: &str) {
        self.schedule(uid, None);
        match self.pods.get_mut(uid) {
            Some(entry) if entry.acting => entry.gone = true,
            _ => {
                self.pods.remove(uid);
            }
        }
    }

    /// The node has become ready for what would replace pods, or no longer is.
    pub(super) fn node_is_ready(&mut self, ready: bool, now: Duration) {
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

    /// There is room again for what did not find any: a new list would find it.
    pub(super) fn wants_list(&self) -> bool {
        self.overflowed && self.pods.len() < MOST / 2
    }

    /// When something is due next.
    pub(super) fn next(&self) -> Option<Duration> {
        self.due.first().filter(|_| !self.waits()).map(|(due, ..)| *due)
    }

    /// Which pod replaces which can only be told once all are known.
    fn waits(&self) -> bool {
        self.partial && self.settings.mode == Mode::DeleteOrReport
    }

    /// What is decided about the next pod that is due. An action counts as begun.
    pub(super) fn take(&mut self, now: Duration) -> Option<Step> {
        let next = self.due.first().filter(|(due, ..)| *due <= now && !self.waits())?.clone();
        self.due.remove(&next);
        let (.., uid) = next;
        let entry = self.pods.get_mut(&uid)?;
        entry.due = None;
        let room = self.budget.room(&entry.broken.pod.namespace, now);
        let lineage = entry.broken.lineage.as_deref();
        entry.history = History {
            node_not_ready: !self.ready,
            replacement: lineage.is_some_and(|lineage| self.lineages.is_replacement(lineage, now)),
            controller: lineage.map_or(Duration::ZERO, |lineage| self.lineages.due(lineage, now)),
            share: room.share,
            room: room.total,
            ..entry.history
        };
        let decision = decide(&entry.broken, &entry.history, &self.settings, now);
        let news = entry.last.replace(timeless(decision)) != Some(timeless(decision));
        let step = Step { broken: entry.broken.clone(), decision, first: entry.history.failures == 0, news };
        match decision {
            Decision::Later(when, _) => self.schedule(&uid, Some(when)),
            Decision::Nothing(_) => {}
            Decision::Act(action) => {
                entry.acting = true;
                if !self.settings.dry_run {
                    self.budget.spend(&step.broken.pod.namespace, now);
                    if let (Action::Delete | Action::Evict, Some(lineage)) = (action, &step.broken.lineage) {
                        let all = self.pods.values().filter_map(|entry| entry.broken.lineage.as_deref());
                        self.lineages.ending(lineage, all, now);
                    }
                }
            }
        }
        Some(step)
    }

    /// An action has ended.
    pub(super) fn ended(&mut self, step: &Step, outcome: &Outcome, now: Duration) {
        let Some(entry) = self.pods.get_mut(&step.broken.uid) else { return };
        entry.acting = false;
        if entry.gone {
            return self.forget(&step.broken.uid);
        }
        let newer = entry.broken.version != step.broken.version;
        let history = &mut entry.history;
        let failed = |history: &mut History, wait: Option<Duration>| {
            history.failures = history.failures.saturating_add(1);
            history.not_before =
                now + wait.map_or_else(|| back_off(history.failures), |wait| wait.clamp(SHORTEST, PATIENCE));
        };
        match outcome {
            Outcome::Ended => history.acted = Some(Acted::Ended),
            Outcome::Labelled => history.acted = Some(Acted::Labelled),
            Outcome::Hopeless(_) => history.acted = Some(Acted::Hopeless),
            Outcome::Reprogrammed { restarts, .. } => {
                *history = History { reprogrammed: Some(*restarts), ..History::default() };
            }
            Outcome::DryRun => history.acted = Some(Acted::DryRun),
            Outcome::Reported => history.acted = Some(Acted::Reported),
            Outcome::Gone => return self.forget(&step.broken.uid),
            // The newer version is here already: that it changed is no failure.
            Outcome::Conflict if newer => {}
            Outcome::Conflict => failed(history, None),
            Outcome::Failed { wait, .. } => failed(history, *wait),
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
    SHORTEST.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST)
}

/// For comparisons: what is put off again is no news.
fn timeless(decision: Decision) -> Decision {
    match decision {
        Decision::Later(_, reason) => Decision::Later(Duration::ZERO, reason),
        decision => decision,
    }
}

#[cfg(test)]
mod tests;
