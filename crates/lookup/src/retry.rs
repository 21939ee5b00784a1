//! Decides how long a lookup is retried. Pure: it reads no clock.

use std::time::Duration;

/// The time limits of a lookup, during which the pod's sandbox waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupBudget {
    /// One request to the agent, which may itself wait for a pod that is not in its cache yet.
    pub agent: Duration,
    /// One request to the API server.
    pub per_request: Duration,
    /// All requests and pauses together.
    pub total: Duration,
    /// Limit for retries after failures that will probably persist: no such pod, another pod of that name, no
    /// permission, an invalid kubeconfig. Such requests are retried at all because the token may be rotating.
    pub doubtful: Duration,
    /// The first pause between two rounds; each following pause doubles, up to eight times the first.
    pub backoff: Duration,
}

impl Default for LookupBudget {
    /// Returns limits well below the two to four minutes after which kubelets give up on a sandbox. Istio's plugin makes
    /// thirty attempts, however long they take.
    fn default() -> Self {
        Self {
            agent: Duration::from_secs(2),
            per_request: Duration::from_secs(5),
            total: Duration::from_secs(20),
            doubtful: Duration::from_secs(5),
            backoff: Duration::from_millis(100),
        }
    }
}

impl LookupBudget {
    /// The limits of CHECK: one round. A restarted runtime calls CHECK for all pods in sequence, and no pod depends on the
    /// result.
    pub const CHECK: Self = Self {
        agent: Duration::from_secs(2),
        per_request: Duration::from_secs(1),
        total: Duration::from_secs(3),
        doubtful: Duration::ZERO,
        // A pause longer than `total` permits no second round.
        backoff: Duration::from_secs(4),
    };
}

/// Whether a retry may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// The failure is temporary: a restart, a busy server, a broken connection.
    Temporary,
    /// The response will probably not change.
    Doubtful,
    /// The response will not change.
    Permanent,
}

/// The next step after a round in which neither source returned [`PodFacts`](podfacts::PodFacts).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Retry(Duration),
    /// The budget is spent, or a retry cannot help.
    GiveUp,
}

/// Decides how long to retry.
#[derive(Debug)]
pub struct RetryPolicy {
    budget: LookupBudget,
    /// The number of rounds that have ended.
    pub(crate) attempts: u32,
    doubtful_since: Option<Duration>,
}

impl RetryPolicy {
    pub fn new(budget: LookupBudget) -> Self {
        Self { budget, attempts: 0, doubtful_since: None }
    }

    /// Decides the next step after a round without [`PodFacts`](podfacts::PodFacts) that ended `elapsed` after the
    /// lookup's start.
    pub fn after(&mut self, outlook: Outlook, elapsed: Duration) -> Step {
        let wait = self.budget.backoff * (1 << self.attempts.min(3));
        self.attempts += 1;
        let end = match outlook {
            Outlook::Permanent => return Step::GiveUp,
            Outlook::Doubtful => *self.doubtful_since.get_or_insert(elapsed) + self.budget.doubtful,
            Outlook::Temporary => {
                self.doubtful_since = None;
                self.budget.total
            }
        };
        if elapsed + wait < end.min(self.budget.total) { Step::Retry(wait) } else { Step::GiveUp }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    const BUDGET: LookupBudget =
        LookupBudget { agent: ms(100), per_request: ms(500), total: ms(10_000), doubtful: ms(2_000), backoff: ms(100) };

    /// Simulates rounds that find nothing and take no time; returns the pauses and the time of giving up, in
    /// milliseconds.
    fn pauses(outlook: Outlook) -> (Vec<u128>, u128) {
        let (mut policy, mut now, mut pauses) = (RetryPolicy::new(BUDGET), Duration::ZERO, Vec::new());
        while let Step::Retry(wait) = policy.after(outlook, now) {
            pauses.push(wait.as_millis());
            now += wait;
        }
        (pauses, now.as_millis())
    }

    #[test]
    fn pauses_double_up_to_eight_times_within_the_total() {
        let (pauses, end) = pauses(Outlook::Temporary);
        assert_eq!(pauses[..6], [100, 200, 400, 800, 800, 800]);
        assert!((9_000..10_000).contains(&end), "{end}");
    }

    #[test]
    fn check_asks_each_source_once() {
        for outlook in [Outlook::Temporary, Outlook::Doubtful, Outlook::Permanent] {
            assert_eq!(RetryPolicy::new(LookupBudget::CHECK).after(outlook, Duration::ZERO), Step::GiveUp);
        }
    }

    #[test]
    fn doubtful_responses_have_their_own_limit() {
        assert_eq!(pauses(Outlook::Doubtful), (vec![100, 200, 400, 800], 1_500));
    }

    #[test]
    fn the_doubtful_limit_starts_with_the_first_of_consecutive_doubtful_responses() {
        let mut policy = RetryPolicy::new(BUDGET);
        assert_eq!(policy.after(Outlook::Doubtful, ms(0)), Step::Retry(ms(100)));
        assert_eq!(policy.after(Outlook::Temporary, ms(1_900)), Step::Retry(ms(200)));
        assert_eq!(policy.after(Outlook::Doubtful, ms(5_000)), Step::Retry(ms(400)));
        assert_eq!(policy.after(Outlook::Doubtful, ms(6_100)), Step::Retry(ms(800)));
        assert_eq!(policy.after(Outlook::Doubtful, ms(6_900)), Step::GiveUp);
    }

    #[test]
    fn a_permanent_failure_is_not_retried() {
        assert_eq!(pauses(Outlook::Permanent), (vec![], 0));
    }

    #[test]
    fn no_pause_exceeds_the_total() {
        let mut policy = RetryPolicy::new(BUDGET);
        assert_eq!(policy.after(Outlook::Temporary, ms(9_900)), Step::GiveUp);
    }
}
