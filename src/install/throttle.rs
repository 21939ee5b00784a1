//! How often the node is changed when another writer changes it back. Pure: the caller brings the time.

use std::time::{Duration, Instant};

/// Changes that may follow one another at once: an ordinary start has about five.
const BURST: f64 = 10.0;
/// Changes per second after that.
const RATE: f64 = 2.0;
/// The longest wait: a pod that starts meanwhile passes the proxy by.
const LONGEST: Duration = Duration::from_secs(1);
/// Waits in a row that are a fight and no coincidence.
const FIGHT: u32 = 5;

/// A token bucket.
#[derive(Debug)]
pub(super) struct Throttle {
    tokens: f64,
    at: Instant,
    waits: u32,
}

impl Throttle {
    pub(super) fn new(now: Instant) -> Self {
        Self { tokens: BURST, at: now, waits: 0 }
    }

    /// How long to wait before the next change.
    pub(super) fn take(&mut self, now: Instant) -> Duration {
        let refill = now.saturating_duration_since(self.at).as_secs_f64() * RATE;
        self.at = now;
        self.tokens = (self.tokens + refill).min(BURST);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            self.waits = 0;
            return Duration::ZERO;
        }
        // Taken in advance; by the end of the wait it is there.
        self.tokens = (self.tokens - 1.0).max(-RATE * LONGEST.as_secs_f64());
        self.waits += 1;
        Duration::from_secs_f64(-self.tokens / RATE)
    }

    /// Whether it is the moment to say that somebody else changes the node back, again and again.
    pub(super) fn is_fight(&self) -> bool {
        self.waits > 0 && self.waits.is_multiple_of(FIGHT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any moment will do")]
    fn a_start_is_not_slowed_and_a_fight_is_named_once_in_a_while() {
        let mut now = Instant::now();
        let mut throttle = Throttle::new(now);
        assert!((0..10).all(|_| throttle.take(now).is_zero()));
        let mut named = 0;
        for _ in 0..20 {
            let wait = throttle.take(now);
            assert!(wait > Duration::ZERO && wait <= LONGEST, "{wait:?}");
            named += u32::from(throttle.is_fight());
            now += wait.mul_f64(0.9);
        }
        assert_eq!(named, 4);
        assert!(throttle.take(now + Duration::from_secs(10)).is_zero());
        assert!(!throttle.is_fight());
    }
}
