//! Decides which certificate is presented: the newest one, once the API server trusts it for long enough or nothing is lost
//! by it.
//!
//! `present` calls it. Pure: both clocks are arguments.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::UnixTime;

use super::bundle::{self, Hook};
use super::identity::Identity;

/// The presented certificate, and since when the newest one is trusted.
#[derive(Debug)]
pub(super) struct Presentation {
    /// The time after which API servers use a new caBundle.
    settle: Duration,
    presented: Option<Arc<Identity>>,
    /// The time since which every webhook's caBundle trusts the newest certificate.
    trusted: Option<Instant>,
}

/// The decision about the newest certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// It is presented from now on.
    Present,
    /// It is presented already.
    Presented,
    /// The former one stays until API servers trust the newest.
    Wait,
}

impl Presentation {
    pub(super) fn new(settle: Duration) -> Self {
        Self { settle, presented: None, trusted: None }
    }

    pub(super) fn presented(&self) -> Option<&Arc<Identity>> {
        self.presented.as_ref()
    }

    /// Restarts the wait: there is a newer certificate.
    pub(super) fn renew(&mut self) {
        self.trusted = None;
    }

    /// Decides about `newest`. `hooks` are the webhooks that lead to this server; `None` before they are known, when any
    /// certificate is better than none.
    pub(super) fn choose(
        &mut self,
        newest: &Arc<Identity>,
        hooks: Option<&[Hook]>,
        now: UnixTime,
        clock: Instant,
    ) -> Choice {
        if self.presented.as_ref().is_some_and(|presented| presented.is_same(newest)) {
            return Choice::Presented;
        }
        if !self.is_due(newest, hooks, now, clock) {
            return Choice::Wait;
        }
        self.presented = Some(Arc::clone(newest));
        Choice::Present
    }

    fn is_due(&mut self, newest: &Identity, hooks: Option<&[Hook]>, now: UnixTime, clock: Instant) -> bool {
        let Some(hooks) = hooks else { return self.presented.is_none() };
        let is_trusted = bundle::verify(newest, hooks, now).is_ok();
        self.trusted = is_trusted.then(|| self.trusted.unwrap_or(clock));
        let is_settled = self.trusted.is_some_and(|since| clock.saturating_duration_since(since) >= self.settle);
        let is_lost = |presented: &Arc<Identity>| !bundle::is_trusted(presented, hooks, now);
        is_settled || self.presented.as_ref().is_none_or(is_lost)
    }
}
