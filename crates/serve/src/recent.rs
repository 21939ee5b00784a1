//! The latest values of one kind, such as errors: a ring of limited length that tasks share, with the number of all
//! values so far.
//!
//! Modules push values; reports read them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The latest values; clones share them.
#[derive(Debug)]
pub struct Recent<T>(Arc<Mutex<Ring<T>>>);

#[derive(Debug)]
struct Ring<T> {
    limit: usize,
    total: u64,
    values: VecDeque<T>,
}

impl<T> Clone for Recent<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Clone> Recent<T> {
    /// Creates a ring that holds at most `limit` values.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(Ring { limit, total: 0, values: VecDeque::new() })))
    }

    /// Adds a value and drops the oldest one beyond the limit.
    pub fn push(&self, value: T) {
        let mut ring = self.ring();
        ring.total = ring.total.saturating_add(1);
        ring.values.push_back(value);
        if ring.values.len() > ring.limit {
            ring.values.pop_front();
        }
    }

    /// Returns the values, the latest one first.
    pub fn latest_first(&self) -> Vec<T> {
        self.ring().values.iter().rev().cloned().collect()
    }

    /// Returns the number of values pushed so far, including dropped ones.
    pub fn total(&self) -> u64 {
        self.ring().total
    }

    fn ring(&self) -> MutexGuard<'_, Ring<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_values_are_dropped_and_all_are_counted() {
        let recent = Recent::new(2);
        let shared = recent.clone();
        (1..=3).for_each(|number| shared.push(number));
        assert_eq!((recent.latest_first(), recent.total()), (vec![3, 2], 3));
    }
}
