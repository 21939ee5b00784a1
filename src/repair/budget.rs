//! The number of actions that repair may take in a minute, in total and for each namespace.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// The period over which actions are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// The actions of the last minute.
#[derive(Debug)]
pub(super) struct Budget {
    most: usize,
    /// Whether a namespace is limited to a share.
    shared: bool,
    spent: VecDeque<(Duration, String)>,
}

/// From when on another action is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// As far as the whole budget goes.
    pub(super) total: Duration,
    /// As far as the share of the namespace goes.
    pub(super) share: Duration,
}

impl Budget {
    /// A budget of `most` actions a minute, of which no namespace may use all.
    pub(super) fn shared(most: u32) -> Self {
        Self { most: most as usize, shared: true, spent: VecDeque::new() }
    }

    /// A budget of `most` actions a minute, whatever their namespaces.
    pub(super) fn whole(most: u32) -> Self {
        Self { shared: false, ..Self::shared(most) }
    }

    /// From when on there is room for another action in this namespace.
    pub(super) fn room(&mut self, namespace: &str, now: Duration) -> Room {
        while self.spent.front().is_some_and(|(at, _)| *at + WINDOW <= now) {
            self.spent.pop_front();
        }
        let own: Vec<Duration> = self.spent.iter().filter(|(_, of)| of == namespace).map(|(at, _)| *at).collect();
        let all: Vec<Duration> = self.spent.iter().map(|(at, _)| *at).collect();
        Room { total: free(&all, self.most), share: free(&own, self.share(namespace)) }
    }

    /// Of n namespaces that act, each gets one part of n + 1: the remaining part is for the next one.
    fn share(&self, namespace: &str) -> usize {
        if !self.shared {
            return self.most;
        }
        let others: BTreeSet<&str> =
            self.spent.iter().map(|(_, of)| of.as_str()).filter(|of| *of != namespace).collect();
        self.most.div_ceil(others.len() + 2)
    }

    /// Counts one action, now.
    pub(super) fn spend(&mut self, namespace: &str, now: Duration) {
        self.spent.push_back((now, namespace.to_owned()));
    }
}

/// When fewer than `most` of these actions are left within the period.
fn free(spent: &[Duration], most: usize) -> Duration {
    let surplus = (spent.len() + 1).checked_sub(most + 1);
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
    fn any_minute_has_so_many_actions() {
        let mut budget = Budget::whole(2);
        for (now, room) in [(5, NONE), (20, NONE), (30, second(65)), (65, NONE), (66, second(80))] {
            let found = budget.room("a", second(now));
            assert_eq!((found.total, found.share), (room, room), "{now}");
            if room == NONE {
                budget.spend("a", second(now));
            }
        }
    }

    #[test]
    fn a_namespace_leaves_room_for_the_next_one() {
        let mut budget = Budget::shared(12);
        let mut acted = |namespace: &str| {
            let mut count = 0;
            while budget.room(namespace, second(1)) == (Room { total: NONE, share: NONE }) {
                budget.spend(namespace, second(1));
                count += 1;
            }
            count
        };
        assert_eq!([acted("a"), acted("b"), acted("c"), acted("a")], [6, 4, 2, 0]);
        assert_eq!(budget.room("d", second(1)), Room { total: second(61), share: NONE });
        assert_eq!(budget.room("b", second(1)), Room { total: second(61), share: second(61) });
        assert_eq!(Budget::shared(1).room("a", NONE).share, NONE, "a budget of one can be used");
    }
}
