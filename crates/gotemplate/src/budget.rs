//! What one review may spend: steps, bytes and time.
//!
//! Reading the pod, rendering, merging and comparing all charge the same [`Budget`]. The clock is the caller's: whoever
//! watches it holds a [`Stop`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How much one review may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Steps: about one for each expression, element and 64 bytes that are looked at.
    pub steps: u64,
    /// Bytes of output and of all that functions make on the way.
    pub bytes: usize,
    /// Blocks, templates and parentheses within each other.
    pub depth: usize,
}

impl Default for Limits {
    /// A hundred times what Istio's largest template takes, and less than a tenth of a second.
    fn default() -> Self {
        Self { steps: 1_000_000, bytes: 8 << 20, depth: 250 }
    }
}

/// Why a review ends before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    /// It takes too many steps.
    #[error("it takes more than {0} steps")]
    Steps(u64),
    /// It makes too many bytes.
    #[error("it makes more than {0} bytes")]
    Bytes(usize),
    /// Its [`Stop`] was set.
    #[error("its time is over")]
    Time,
}

/// Ends the work of a [`Budget`] at its next step. Clones share one flag.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Sets the flag, for good.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What is left of the [`Limits`]. Functions that make much of little pay before they make it. A clone has what is left at
/// that moment.
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
    /// The whole of these limits, without a limit of time.
    pub fn new(limits: Limits) -> Self {
        Self::until(limits, Stop::default())
    }

    /// The whole of these limits, until the flag is set.
    pub fn until(limits: Limits, stop: Stop) -> Self {
        Self { limits, steps: limits.steps, bytes: limits.bytes, stop }
    }

    /// Takes so many steps: about one for each expression, function, element or 64 bytes that are looked at.
    ///
    /// # Errors
    /// So many are not left, or the time is over.
    pub fn step(&mut self, steps: usize) -> Result<(), Exceeded> {
        let left = u64::try_from(steps).ok().and_then(|steps| self.steps.checked_sub(steps));
        self.steps = left.ok_or(Exceeded::Steps(self.limits.steps))?;
        if self.stop.is_set() { Err(Exceeded::Time) } else { Ok(()) }
    }

    /// Takes so many bytes, of output or of what is made on the way.
    ///
    /// # Errors
    /// So many are not left.
    pub fn bytes(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Exceeded::Bytes(self.limits.bytes))?;
        Ok(())
    }

    /// How many blocks, templates and parentheses may stand within each other.
    pub(super) fn depth(&self) -> usize {
        self.limits.depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_the_limit_is_named() {
        let mut budget = Budget::new(Limits { steps: 3, bytes: 4, depth: 1 });
        assert_eq!((budget.step(2), budget.step(2), budget.step(1)), (Ok(()), Err(Exceeded::Steps(3)), Ok(())));
        assert_eq!((budget.bytes(4), budget.bytes(1)), (Ok(()), Err(Exceeded::Bytes(4))));
    }

    #[test]
    fn time_ends_every_clone_at_its_next_step() {
        let stop = Stop::default();
        let mut budget = Budget::until(Limits::default(), stop.clone());
        let mut clone = budget.clone();
        assert_eq!(clone.step(1), Ok(()));
        stop.set();
        assert_eq!((budget.step(0), clone.step(1)), (Err(Exceeded::Time), Err(Exceeded::Time)));
    }
}
