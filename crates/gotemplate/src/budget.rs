//! Budgets of steps, bytes and time.
//!
//! One [`Budget`] can bound more than a rendering: the caller may also charge it for reading the data and for work on
//! the output. The crate reads no clock: a caller that limits the time watches the clock and sets a [`Stop`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Limits of a [`Budget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Steps: about one for each expression, each element, and each 64 bytes of text that a function reads.
    pub steps: u64,
    /// Bytes of output and of intermediate values.
    pub bytes: usize,
    /// Levels of nested blocks, templates and parentheses.
    pub depth: usize,
}

impl Default for Limits {
    /// A million steps, which take less than a tenth of a second, 8 MiB, and 250 levels.
    fn default() -> Self {
        Self { steps: 1_000_000, bytes: 8 << 20, depth: 250 }
    }
}

/// The limit of a [`Budget`] that ended the work charged to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    /// The work needed more than this number of steps.
    #[error("processing takes more than {0} steps")]
    Steps(u64),
    /// The work needed more than this number of bytes.
    #[error("processing produces more than {0} bytes")]
    Bytes(usize),
    /// The [`Stop`] of the budget was set.
    #[error("processing takes longer than its time limit")]
    Time,
}

/// A flag that ends the work of a [`Budget`] at its next step. Clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Sets the flag; it cannot be cleared.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the flag is set.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The part of the [`Limits`] that is left while a template renders. Functions charge a budget before they make large
/// values from small ones. A clone counts separately, but shares the [`Stop`].
#[derive(Debug, Clone)]
pub struct Budget {
    limits: Limits,
    steps: u64,
    bytes: usize,
    stop: Stop,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Budget {
    /// Creates a budget without a time limit.
    pub fn new(limits: Limits) -> Self {
        Self::until(limits, Stop::default())
    }

    /// Creates a budget whose work also ends when `stop` is set.
    pub fn until(limits: Limits, stop: Stop) -> Self {
        Self { limits, steps: limits.steps, bytes: limits.bytes, stop }
    }

    /// Takes this number of steps; see [`Limits::steps`].
    ///
    /// # Errors
    /// Fewer steps are left, or the [`Stop`] is set.
    #[inline]
    pub fn step(&mut self, steps: usize) -> Result<(), Exceeded> {
        let left = u64::try_from(steps).ok().and_then(|steps| self.steps.checked_sub(steps));
        self.steps = left.ok_or(Exceeded::Steps(self.limits.steps))?;
        if self.stop.is_set() { Err(Exceeded::Time) } else { Ok(()) }
    }

    /// Takes this number of bytes of output or of intermediate values.
    ///
    /// # Errors
    /// Fewer bytes are left.
    #[inline]
    pub fn bytes(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Exceeded::Bytes(self.limits.bytes))?;
        Ok(())
    }

    /// Returns the part of the limits that is left.
    pub fn left(&self) -> Limits {
        Limits { steps: self.steps, bytes: self.bytes, ..self.limits }
    }

    /// See [`Limits::depth`].
    pub(super) fn depth(&self) -> usize {
        self.limits.depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_limit() {
        let mut budget = Budget::new(Limits { steps: 3, bytes: 4, depth: 1 });
        assert_eq!((budget.step(2), budget.step(2), budget.step(1)), (Ok(()), Err(Exceeded::Steps(3)), Ok(())));
        assert_eq!((budget.bytes(4), budget.bytes(1)), (Ok(()), Err(Exceeded::Bytes(4))));
    }

    #[test]
    fn a_stop_ends_every_clone_at_its_next_step() {
        let stop = Stop::default();
        let mut budget = Budget::until(Limits::default(), stop.clone());
        let mut clone = budget.clone();
        assert_eq!(clone.step(1), Ok(()));
        stop.set();
        assert_eq!((budget.step(0), clone.step(1)), (Err(Exceeded::Time), Err(Exceeded::Time)));
    }
}
