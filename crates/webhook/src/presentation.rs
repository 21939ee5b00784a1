//! Decides when the newest certificate is presented: once the API server has trusted it for long enough, or at once if
//! no trusted certificate is presented.
//!
//! `present` calls this module, which does no I/O: the wall clock and the monotonic clock are arguments.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::UnixTime;

use super::bundle::{self, Hook};
use super::identity::Identity;

/// The presented certificate, and the time since which the newest certificate is trusted.
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
    /// The newest certificate is presented from now on.
    Present,
    /// The newest certificate is already presented.
    Presented,
    /// The former certificate stays until API servers trust the newest one.
    Wait,
}

impl Presentation {
    pub(super) fn new(settle: Duration) -> Self {
        Self { settle, presented: None, trusted: None }
    }

    pub(super) fn presented(&self) -> Option<&Arc<Identity>> {
        self.presented.as_ref()
    }

    /// Restarts the wait, because a newer certificate exists.
    pub(super) fn renew(&mut self) {
        self.trusted = None;
    }

    /// Decides whether to present `newest`. `hooks`: the webhooks that refer to this server, or `None` before they are
    /// known. In this case `newest` is presented only if no certificate is presented yet.
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
