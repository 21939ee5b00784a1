//! Whether ending a pod helps: a pod that was created after repair ended another pod of its controller, and is broken as
//! well, shows that it does not.
//!
//! `tracker` uses it. Creation times are the API server's and are compared with each other only.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

/// A controller without an action for this long is forgotten.
const MEMORY: Duration = Duration::from_secs(3600);
/// The pause before the pods that replace those of the first round are ended; each further round doubles it. These are the
/// kubelet's figures for containers that keep failing.
const SHORTEST: Duration = Duration::from_secs(10);
/// The longest pause between two rounds.
const LONGEST: Duration = Duration::from_secs(300);

/// What a pod was created by, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    /// The UID of its controller.
    pub controller: String,
    /// `metadata.creationTimestamp`
    pub created: Timestamp,
}

/// Controllers whose pods were ended of late.
#[derive(Debug, Default)]
pub(super) struct Lineages(BTreeMap<String, Round>);

/// Pods of one controller that were ended together: those that existed when the first of them was ended.
#[derive(Debug)]
struct Round {
    /// 1 for the first one.
    number: u32,
    /// When the first pod was ended.
    began: Duration,
    /// When a pod was ended last.
    last: Duration,
    /// The creation time of the youngest pod of the round: younger ones are replacements.
    youngest: Timestamp,
}

impl Lineages {
    /// A pod is being ended; `all` are those that are known to be broken, itself among them.
    pub(super) fn ending<'a>(&mut self, pod: &Lineage, all: impl Iterator<Item = &'a Lineage>, now: Duration) {
        self.0.retain(|_, round| now < round.last + MEMORY);
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

    /// Whether a pod replaces one that was ended within the hour.
    pub(super) fn is_replacement(&self, pod: &Lineage, now: Duration) -> bool {
        self.0.get(&pod.controller).is_some_and(|round| now < round.began + MEMORY && pod.created > round.youngest)
    }

    /// From when on a pod may be ended: at once, unless it is a replacement.
    pub(super) fn due(&self, pod: &Lineage, now: Duration) -> Duration {
        match self.0.get(&pod.controller) {
            Some(round) if now < round.last + MEMORY && pod.created > round.youngest => {
                round.last + pause(round.number)
            }
            _ => Duration::ZERO,
        }
    }
}

fn pause(rounds: u32) -> Duration {
    SHORTEST.saturating_mul(1 << rounds.saturating_sub(1).min(16)).min(LONGEST)
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
    fn a_replacement_is_younger_than_all_that_were_there() {
        let mut lineages = Lineages::default();
        let known = [pod("a", 10), pod("a", 20), pod("b", 90)];
        assert!(!lineages.is_replacement(&known[1], second(0)));
        lineages.ending(&known[0], known.iter(), second(0));
        for (other, replacement) in
            [(pod("a", 10), false), (pod("a", 20), false), (pod("a", 21), true), (pod("b", 99), false)]
        {
            assert_eq!(lineages.is_replacement(&other, second(5)), replacement, "{other:?}");
        }
        // A sibling that is ended later changes nothing.
        lineages.ending(&known[1], [pod("a", 20), pod("a", 21)].iter(), second(6));
        assert!(lineages.is_replacement(&pod("a", 21), second(7)));
        assert!(!lineages.is_replacement(&pod("a", 21), second(3600)), "it is forgotten after an hour");
    }

    #[test]
    fn rounds_are_ever_further_apart_up_to_five_minutes() {
        let (mut lineages, mut now, mut pauses) = (Lineages::default(), second(0), Vec::new());
        for round in 0..8 {
            let [first, second_] = [pod("a", 100 * round + 1), pod("a", 100 * round + 2)];
            pauses.push(lineages.due(&first, now).saturating_sub(now).as_secs());
            now = now.max(lineages.due(&first, now));
            lineages.ending(&first, [first.clone(), second_.clone()].iter(), now);
            assert_eq!(lineages.due(&second_, now), Duration::ZERO, "both are of one round");
            now += second(1);
            lineages.ending(&second_, [second_.clone()].iter(), now);
        }
        assert_eq!(pauses, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(lineages.due(&pod("b", 9999), now), Duration::ZERO, "other controllers are not concerned");
        assert_eq!(lineages.due(&pod("a", 9999), now + MEMORY), Duration::ZERO, "it is forgotten after an hour");
    }
}
