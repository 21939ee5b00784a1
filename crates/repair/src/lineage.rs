//! Delays repeated evictions of a controller's pods: if the replacement of an evicted pod is broken, too, eviction
//! does not help.
//!
//! `tracker` calls this module. Creation times come from the API server and are compared only with each other, not with
//! the local clock.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

/// The time after the last eviction or deletion of a controller's pod at which the controller is forgotten.
const RETENTION: Duration = Duration::from_secs(3600);
/// The delay between the first two rounds of a controller's evictions; each further round doubles it, up to
/// [`MAX_DELAY`]. The kubelet's back-off for failing containers has the same two limits.
const MIN_DELAY: Duration = Duration::from_secs(10);
const MAX_DELAY: Duration = Duration::from_secs(300);

/// A pod's controller and creation time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    /// The controller's UID.
    pub controller: String,
    /// `metadata.creationTimestamp`
    pub created: Timestamp,
}

/// The controllers whose pods were recently evicted or deleted, by UID.
#[derive(Debug, Default)]
pub(super) struct Lineages(BTreeMap<String, Round>);

/// A round of evictions or deletions: the broken pods of one controller that existed when the first of them was evicted or
/// deleted. Their replacements belong to the next round.
#[derive(Debug)]
struct Round {
    /// The number of the round, from 1.
    number: u32,
    /// The time at which the first eviction or deletion of the round started.
    began: Duration,
    /// The time at which the last eviction or deletion of the round started.
    last: Duration,
    /// The latest creation time in the round; pods created later are replacements.
    youngest: Timestamp,
}

impl Lineages {
    /// Records that the eviction or deletion of a pod starts. `all` are the known broken pods, including this one.
    pub(super) fn record_end<'a>(&mut self, pod: &Lineage, all: impl Iterator<Item = &'a Lineage>, now: Duration) {
        self.0.retain(|_, round| now < round.last + RETENTION);
        let former = self.0.get_mut(&pod.controller);
        let number = match former {
            Some(round) if pod.created <= round.youngest => {
                round.last = now;
                return;
            }
            former => former.map_or(1, |round| round.number.saturating_add(1)),
        };
        let siblings = all.filter(|other| other.controller == pod.controller);
        let youngest = siblings.map(|other| other.created).fold(pod.created, Timestamp::max);
        self.0.insert(pod.controller.clone(), Round { number, began: now, last: now, youngest });
    }

    /// Whether a pod was created after all pods of its controller's round, and the round began less than [`RETENTION`]
    /// ago.
    pub(super) fn is_replacement(&self, pod: &Lineage, now: Duration) -> bool {
        self.0.get(&pod.controller).is_some_and(|round| now < round.began + RETENTION && pod.created > round.youngest)
    }

    /// Returns the earliest time at which a pod may be evicted or deleted: zero, unless the pod is a replacement.
    pub(super) fn not_before(&self, pod: &Lineage, now: Duration) -> Duration {
        match self.0.get(&pod.controller) {
            Some(round) if now < round.last + RETENTION && pod.created > round.youngest => {
                round.last + back_off(round.number)
            }
            _ => Duration::ZERO,
        }
    }
}

fn back_off(rounds: u32) -> Duration {
    MIN_DELAY.saturating_mul(1 << rounds.saturating_sub(1).min(16)).min(MAX_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(controller: &str, second: i64) -> Lineage {
        Lineage { controller: controller.into(), created: Timestamp::from_second(second).unwrap() }
    }

    fn second(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_replacement_is_younger_than_all_pods_of_the_round() {
        let mut lineages = Lineages::default();
        let known = [pod("a", 10), pod("a", 20), pod("b", 90)];
        assert!(!lineages.is_replacement(&known[1], second(0)));
        lineages.record_end(&known[0], known.iter(), second(0));
        for (other, replacement) in
            [(pod("a", 10), false), (pod("a", 20), false), (pod("a", 21), true), (pod("b", 99), false)]
        {
            assert_eq!(lineages.is_replacement(&other, second(5)), replacement, "{other:?}");
        }
        // A later eviction of another pod in the round must not change which pods are replacements.
        lineages.record_end(&known[1], [pod("a", 20), pod("a", 21)].iter(), second(6));
        assert!(lineages.is_replacement(&pod("a", 21), second(7)));
        assert!(!lineages.is_replacement(&pod("a", 21), second(3600)), "the controller is forgotten after an hour");
    }

    #[test]
    fn the_delay_between_rounds_doubles_up_to_five_minutes() {
        let (mut lineages, mut now, mut pauses) = (Lineages::default(), second(0), Vec::new());
        for round in 0..8 {
            let [first, second_] = [pod("a", 100 * round + 1), pod("a", 100 * round + 2)];
            pauses.push(lineages.not_before(&first, now).saturating_sub(now).as_secs());
            now = now.max(lineages.not_before(&first, now));
            lineages.record_end(&first, [first.clone(), second_.clone()].iter(), now);
            assert_eq!(lineages.not_before(&second_, now), Duration::ZERO, "both pods are in one round");
            now += second(1);
            lineages.record_end(&second_, [second_.clone()].iter(), now);
        }
        assert_eq!(pauses, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(lineages.not_before(&pod("b", 9999), now), Duration::ZERO, "other controllers have no delay");
        assert_eq!(
            lineages.not_before(&pod("a", 9999), now + RETENTION),
            Duration::ZERO,
            "the controller is forgotten after an hour"
        );
    }
}
