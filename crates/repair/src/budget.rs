//! Limits actions per minute, in total and per namespace.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// The period over which actions are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// A sliding window of the actions in the last minute.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    /// Whether each namespace is limited to a share.
    shared: bool,
    spent: VecDeque<(Duration, String)>,
}

/// The earliest times for another action in a namespace, by each of the two limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Earliest {
    /// The earliest time within the budget of all namespaces.
    pub(super) total: Duration,
    /// The earliest time within the namespace's share of the budget.
    pub(super) share: Duration,
}

impl Budget {
    /// Creates a budget of `limit` actions per minute that one namespace cannot exhaust.
    pub(super) fn shared(limit: u32) -> Self {
        Self { limit: limit as usize, shared: true, spent: VecDeque::new() }
    }

    /// Creates a budget of `limit` actions per minute for all namespaces together.
    pub(super) fn whole(limit: u32) -> Self {
        Self { shared: false, ..Self::shared(limit) }
    }

    /// Returns the earliest times for another action in this namespace.
    pub(super) fn earliest(&mut self, namespace: &str, now: Duration) -> Earliest {
        while self.spent.front().is_some_and(|(at, _)| *at + WINDOW <= now) {
            self.spent.pop_front();
        }
        let own: Vec<Duration> = self.spent.iter().filter(|(_, of)| of == namespace).map(|(at, _)| *at).collect();
        let all: Vec<Duration> = self.spent.iter().map(|(at, _)| *at).collect();
        Earliest { total: earliest_slot(&all, self.limit), share: earliest_slot(&own, self.share(namespace)) }
    }

    /// Returns the share of a namespace, in actions per minute. If n namespaces have actions in the window, including
    /// this one, the share is 1/(n + 1) of the budget, which leaves a share for another namespace.
    fn share(&self, namespace: &str) -> usize {
        if !self.shared {
            return self.limit;
        }
        let others: BTreeSet<&str> =
            self.spent.iter().map(|(_, of)| of.as_str()).filter(|of| *of != namespace).collect();
        self.limit.div_ceil(others.len() + 2)
    }

    pub(super) fn spend(&mut self, namespace: &str, now: Duration) {
        self.spent.push_back((now, namespace.to_owned()));
    }
}

/// Returns the time from which fewer than `limit` of these actions are within the window.
fn earliest_slot(spent: &[Duration], limit: usize) -> Duration {
    let surplus = (spent.len() + 1).checked_sub(limit + 1);
    surplus.and_then(|index| spent.get(index)).map_or(Duration::ZERO, |at| *at + WINDOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;

    fn second(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn any_minute_has_at_most_the_limit_of_actions() {
        let mut budget = Budget::whole(2);
        for (now, room) in [(5, NONE), (20, NONE), (30, second(65)), (65, NONE), (66, second(80))] {
            let found = budget.earliest("a", second(now));
            assert_eq!((found.total, found.share), (room, room), "{now}");
            if room == NONE {
                budget.spend("a", second(now));
            }
        }
    }

    #[test]
    fn a_namespace_leaves_a_share_for_the_next_one() {
        let mut budget = Budget::shared(12);
        let mut acted = |namespace: &str| {
            let mut count = 0;
            while budget.earliest(namespace, second(1)) == (Earliest { total: NONE, share: NONE }) {
                budget.spend(namespace, second(1));
                count += 1;
            }
            count
        };
        assert_eq!([acted("a"), acted("b"), acted("c"), acted("a")], [6, 4, 2, 0]);
        assert_eq!(budget.earliest("d", second(1)), Earliest { total: second(61), share: NONE });
        assert_eq!(budget.earliest("b", second(1)), Earliest { total: second(61), share: second(61) });
        assert_eq!(Budget::shared(1).earliest("a", NONE).share, NONE, "a budget of one can be used");
    }
}
