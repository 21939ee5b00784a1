//! The outcomes of reviews, and the state of configuration, certificates and caBundles, which the status page shows.
//!
//! [`Metrics`](super::Metrics) records them, and `report` reads them. The number and the length of entries are limited.
//! Pure: times are arguments.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serve::recent::Recent;

use super::identity::Identity;
use super::warnings::clipped;

/// The number of reviews in the list of the slowest ones.
pub(super) const SLOWEST: usize = 50;
/// The number of refusals that are kept.
pub(super) const REFUSALS: usize = 200;
/// The length limit of a reason or fault, in characters.
const LONGEST_TEXT: usize = 300;

/// The state that the status page shows; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Activity {
    state: Arc<Mutex<State>>,
    refusals: Recent<Refused>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of reviews by decision and rule, each of which has few values.
    counts: BTreeMap<(&'static str, &'static str), u64>,
    /// The slowest reviews, the slowest one first.
    slowest: Vec<Reviewed>,
    reloads: BTreeMap<Reload, Reloaded>,
    presented: Option<(Timestamp, Arc<Identity>)>,
    bundles: Vec<BundleState>,
}

/// A part of the server that is reloaded while the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reload {
    Configuration,
    Certificate,
}

impl Reload {
    /// Returns the metric label.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Certificate => "certificate",
        }
    }
}

/// The last successful load of a part, and a later failure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Reloaded {
    /// The time of the last successful load.
    pub(super) loaded: Option<Timestamp>,
    /// The time and the reason of a later failure.
    pub(super) fault: Option<(Timestamp, String)>,
}

/// A review with its duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reviewed {
    pub(super) time: Timestamp,
    /// `namespace/name`, from the review.
    pub(super) pod: String,
    pub(super) took: Duration,
    pub(super) decision: &'static str,
    pub(super) rule: &'static str,
}

/// A review that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) time: Timestamp,
    /// `namespace/name`, from the review.
    pub(super) pod: String,
    pub(super) rule: &'static str,
    pub(super) reason: String,
}

/// Whether the caBundles of a selection of webhook configurations trust the presented certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BundleState {
    /// The name or label selector of the configurations.
    pub(super) selection: String,
    /// Why the caBundles do not trust the certificate; `None` if they do.
    pub(super) fault: Option<String>,
}

impl Default for Activity {
    fn default() -> Self {
        Self { state: Arc::default(), refusals: Recent::new(REFUSALS) }
    }
}

impl Activity {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a decision by this rule.
    pub(super) fn counted(&self, decision: &'static str, rule: &'static str) {
        let mut state = self.state();
        let count = state.counts.entry((decision, rule)).or_default();
        *count = count.saturating_add(1);
    }

    /// Keeps a review if it is one of the slowest.
    pub(super) fn timed(&self, review: Reviewed) {
        let slowest = &mut self.state().slowest;
        let place = slowest.partition_point(|other| other.took >= review.took);
        if place < SLOWEST {
            slowest.truncate(SLOWEST - 1);
            slowest.insert(place, review);
        }
    }

    /// Keeps a refusal, with a shortened reason.
    pub(super) fn refused(&self, refusal: Refused) {
        self.refusals.push(Refused { reason: clipped(&refusal.reason, LONGEST_TEXT), ..refusal });
    }

    /// Records a reload, and the reason if it failed.
    pub(super) fn reloaded(&self, what: Reload, now: Timestamp, fault: Option<&str>) {
        let mut state = self.state();
        let reloaded = state.reloads.entry(what).or_default();
        reloaded.fault = fault.map(|reason| (now, clipped(reason, LONGEST_TEXT)));
        if fault.is_none() {
            reloaded.loaded = Some(now);
        }
    }

    /// Removes the fault of a part, because the part's source is valid again.
    pub(super) fn recovered(&self, what: Reload) {
        self.state().reloads.entry(what).or_default().fault = None;
    }

    /// Records the certificate that is presented from now on.
    pub(super) fn presents(&self, now: Timestamp, identity: Identity) {
        self.state().presented = Some((now, Arc::new(identity)));
    }

    /// Replaces the states of the caBundles.
    pub(super) fn compared(&self, bundles: impl Iterator<Item = (String, Result<(), String>)>) {
        let state = |(selection, agreed): (String, Result<(), String>)| {
            let fault = agreed.err().map(|reason| clipped(&reason, LONGEST_TEXT));
            BundleState { selection, fault }
        };
        self.state().bundles = bundles.map(state).collect();
    }

    /// Returns the numbers of reviews by decision and rule.
    pub(super) fn counts(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        self.state().counts.clone()
    }

    /// Returns the slowest reviews, the slowest one first.
    pub(super) fn slowest(&self) -> Vec<Reviewed> {
        self.state().slowest.clone()
    }

    /// Returns the latest refusals.
    pub(super) fn refusals(&self) -> &Recent<Refused> {
        &self.refusals
    }

    /// Returns the last successful load of a part and a later failure.
    pub(super) fn reloads(&self, what: Reload) -> Reloaded {
        self.state().reloads.get(&what).cloned().unwrap_or_default()
    }

    /// Returns the presented certificate, and since when it is presented.
    pub(super) fn presented(&self) -> Option<(Timestamp, Arc<Identity>)> {
        self.state().presented.clone()
    }

    /// Returns the states of the caBundles; empty if they are not known.
    pub(super) fn bundles(&self) -> Vec<BundleState> {
        self.state().bundles.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(millis: u64) -> Reviewed {
        let took = Duration::from_millis(millis);
        Reviewed { time: Timestamp::UNIX_EPOCH, pod: "shop/web".into(), took, decision: "inject", rule: "policy" }
    }

    #[test]
    fn only_the_slowest_reviews_are_kept_in_order() {
        let activity = Activity::default();
        // Each duration once, in an order that is neither ascending nor descending.
        (0..200).for_each(|number| activity.timed(review(number * 77 % 200)));
        let kept: Vec<u128> = activity.slowest().iter().map(|review| review.took.as_millis()).collect();
        assert_eq!(kept, (150..200).rev().collect::<Vec<_>>());
    }

    #[test]
    fn refusals_are_limited_in_number_and_length() {
        let activity = Activity::default();
        let reason = "x".repeat(10_000);
        for number in 0..=REFUSALS {
            let (time, pod) = (Timestamp::UNIX_EPOCH, number.to_string());
            activity.refused(Refused { time, pod, rule: "error", reason: reason.clone() });
        }
        let kept = activity.refusals().latest_first();
        assert_eq!((kept.len(), activity.refusals().total()), (REFUSALS, REFUSALS as u64 + 1));
        assert_eq!((kept[0].pod.as_str(), kept[0].reason.chars().count()), ("200", LONGEST_TEXT));
    }

    #[test]
    fn a_fault_ends_with_the_next_load_or_recovery_and_keeps_the_time_of_the_last_load() {
        let (activity, what) = (Activity::default(), Reload::Configuration);
        let at = |second| Timestamp::from_second(second).unwrap();
        activity.reloaded(what, at(1), None);
        activity.reloaded(what, at(2), Some("bad"));
        let faulty = Reloaded { loaded: Some(at(1)), fault: Some((at(2), "bad".to_owned())) };
        assert_eq!((activity.reloads(what), activity.reloads(Reload::Certificate)), (faulty, Reloaded::default()));
        activity.recovered(what);
        assert_eq!(activity.reloads(what), Reloaded { loaded: Some(at(1)), fault: None });
        activity.reloaded(what, at(3), None);
        assert_eq!(activity.reloads(what), Reloaded { loaded: Some(at(3)), fault: None });
    }
}
