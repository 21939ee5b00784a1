//! How many actions a minute may have: a storm of broken pods must not become a storm of requests.

use std::collections::VecDeque;
use std::time::Duration;

/// Over which actions are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// The times of the last actions, as many as a window may have.
#[derive(Debug)]
pub(super) struct Budget {
    most: usize,
    spent: VecDeque<Duration>,
}

impl Budget {
    pub(super) fn new(most: u32) -> Self {
        Self { most: most as usize, spent: VecDeque::new() }
    }

    /// From when on there is room for one more: never in the future of the action that it is asked for, if there is now.
    pub(super) fn room(&self) -> Duration {
        match self.spent.front() {
            Some(oldest) if self.spent.len() >= self.most => *oldest + WINDOW,
            _ => Duration::ZERO,
        }
    }

    /// One action, now.
    pub(super) fn spend(&mut self, now: Duration) {
        if self.spent.len() >= self.most {
            self.spent.pop_front();
        }
        self.spent.push_back(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_room_for_so_many_in_any_minute() {
        let second = Duration::from_secs;
        let mut budget = Budget::new(2);
        assert_eq!(budget.room(), Duration::ZERO);
        budget.spend(second(5));
        assert_eq!(budget.room(), Duration::ZERO);
        budget.spend(second(20));
        assert_eq!(budget.room(), second(65));
        budget.spend(second(65));
        assert_eq!(budget.room(), second(80));
        assert_eq!(budget.spent.len(), 2);
    }
}
