//! Limits the rate of passes that change files while another writer reverts the changes. Pure: the caller passes the
//! time.

use std::time::{Duration, Instant};

/// The number of passes with changes that need no wait; a first installation makes fewer.
const BURST: f64 = 10.0;
/// The number of passes with changes per second after the burst.
const RATE: f64 = 2.0;
/// The longest wait. It is short because pods that start meanwhile are not redirected.
const LONGEST: Duration = Duration::from_secs(1);
/// The number of consecutive waits from which another writer is assumed to revert the changes.
const CONTENDED_AFTER: u32 = 5;

/// A token bucket.
#[derive(Debug)]
pub(super) struct Throttle {
    tokens: f64,
    at: Instant,
    /// Consecutive waits.
    waits: u32,
}

impl Throttle {
    pub(super) fn new(now: Instant) -> Self {
        Self { tokens: BURST, at: now, waits: 0 }
    }

    /// Takes a token for a pass that has changed files, and returns the time to wait before the next pass.
    pub(super) fn take(&mut self, now: Instant) -> Duration {
        let refill = now.saturating_duration_since(self.at).as_secs_f64() * RATE;
        self.at = now;
        self.tokens = (self.tokens + refill).min(BURST);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            self.waits = 0;
            return Duration::ZERO;
        }
        // The token is taken in advance: the bucket has it when the wait ends.
        self.tokens = (self.tokens - 1.0).max(-RATE * LONGEST.as_secs_f64());
        self.waits += 1;
        Duration::from_secs_f64(-self.tokens / RATE)
    }

    /// Whether to warn of another writer: at every [`CONTENDED_AFTER`]th consecutive wait.
    pub(super) fn is_contended(&self) -> bool {
        self.waits > 0 && self.waits.is_multiple_of(CONTENDED_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test needs any instant")]
    fn a_first_installation_does_not_wait_and_contention_is_reported_every_fifth_time() {
        let mut now = Instant::now();
        let mut throttle = Throttle::new(now);
        assert!((0..10).all(|_| throttle.take(now).is_zero()));
        let mut reports = 0;
        for _ in 0..20 {
            let wait = throttle.take(now);
            assert!(wait > Duration::ZERO && wait <= LONGEST, "{wait:?}");
            reports += u32::from(throttle.is_contended());
            now += wait.mul_f64(0.9);
        }
        assert_eq!(reports, 4);
        assert!(throttle.take(now + Duration::from_secs(10)).is_zero());
        assert!(!throttle.is_contended());
    }
}
