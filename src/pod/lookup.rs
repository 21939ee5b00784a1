//! Looks up a pod's [`PodFacts`]: from the agent first, then from the API server, until the time limits are reached.
//!
//! `plugin` starts a [`Lookup`] for pods that may have a sidecar, and falls back to the API server if the agent returns
//! no [`PodFacts`]. [`RetryPolicy`] decides whether to try again; it reads no clock. A lookup that finds nothing is an
//! error, never "no sidecar".

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::api::{self, Refusal};
use super::deadline::{Stopwatch, pause};
use super::{ExtractError, PodFacts, PodName, agent, kubeconfig};
use crate::contract;

/// Time limits of a lookup, while the sandbox waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupBudget {
    /// One request to the agent, which may itself wait for a pod that it has no entry for yet.
    pub agent: Duration,
    /// One request to the API server.
    pub per_request: Duration,
    /// All requests and pauses together.
    pub total: Duration,
    /// Limit for retrying after responses that will probably not change: no such pod, another pod of that name, no
    /// permission, an invalid kubeconfig. They are retried at all because the token may be rotating.
    pub doubtful: Duration,
    /// The first pause between two rounds; each following one doubles, up to eight times the first.
    pub backoff: Duration,
}

impl Default for LookupBudget {
    /// Limits well below the two to four minutes after which kubelets give up on a sandbox. Istio's plugin makes thirty
    /// attempts, whatever time they take.
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
    /// Limits of CHECK: one round. A runtime that restarts calls CHECK for one pod after the other, and no pod depends on
    /// the result.
    pub const CHECK: Self = Self {
        agent: Duration::from_secs(2),
        per_request: Duration::from_secs(1),
        total: Duration::from_secs(3),
        doubtful: Duration::ZERO,
        // A pause longer than `total` permits no second round.
        backoff: Duration::from_secs(4),
    };
}

/// The source of a pod's [`PodFacts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Agent,
    Api,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Agent => "agent",
            Self::Api => "api",
        })
    }
}

/// A pod's [`PodFacts`] with their source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The [`PodFacts`] of the pod with the requested UID.
    pub facts: PodFacts,
    pub source: Source,
    /// Number of rounds, from 1.
    pub attempts: u32,
}

/// The reason for which the agent returned no [`PodFacts`].
#[derive(Debug, thiserror::Error)]
pub enum AgentMiss {
    #[error("{0}")]
    Failed(agent::Error),
    #[error("the agent has no entry for the pod")]
    Unknown,
    /// The agent has another pod of that name: its cache is stale, or this sandbox is.
    #[error("the agent has another pod of that name, with UID {0:?}")]
    OtherUid(String),
}

/// The reason for which the API server returned no [`PodFacts`].
#[derive(Debug, thiserror::Error)]
pub enum ApiMiss {
    #[error("{0}")]
    Failed(api::Error),
    /// The API server has another pod of that name.
    #[error("the API server has the pod with UID {0:?}: the pod of this sandbox was replaced")]
    OtherUid(String),
}

/// Neither the agent nor the API server returned the pod. The text has the reasons of the last round.
#[derive(Debug, thiserror::Error)]
#[error("pod {pod}{} could not be looked up, after {} in {:.1} s: {agent}; {api}",
    .uid.as_ref().map(|uid| format!(" (UID {uid})")).unwrap_or_default(), rounds(*.attempts), .elapsed.as_secs_f64())]
pub struct Error {
    pub pod: PodName,
    /// The UID that the runtime passed.
    pub uid: Option<String>,
    /// Number of rounds.
    pub attempts: u32,
    pub elapsed: Duration,
    pub agent: Box<AgentMiss>,
    pub api: Box<ApiMiss>,
}

fn rounds(number: u32) -> String {
    format!("{number} attempt{}", if number == 1 { "" } else { "s" })
}

impl Error {
    /// Whether the runtime may succeed later: a source was absent or busy, or did not accept the token yet. False if
    /// the API server reports that the pod does not exist.
    pub fn is_temporary(&self) -> bool {
        match &*self.api {
            ApiMiss::OtherUid(_) => false,
            ApiMiss::Failed(error) => match error {
                api::Error::Refused { refusal, .. } => {
                    !matches!(refusal, Refusal::Forbidden | Refusal::NotFound | Refusal::Other)
                }
                api::Error::Facts { .. } => false,
                api::Error::Kubeconfig(_)
                | api::Error::Authorities(_)
                | api::Error::Connect { .. }
                | api::Error::Tls { .. }
                | api::Error::Exchange { .. } => true,
            },
        }
    }
}

/// A lookup whose request was sent to the agent. The caller can do other work until the response comes.
#[derive(Debug)]
pub struct Lookup<'a> {
    run_dir: &'a Path,
    pod: &'a PodName,
    uid: Option<&'a str>,
    budget: LookupBudget,
    watch: Stopwatch,
    request: Result<agent::Pending, agent::Error>,
}

impl<'a> Lookup<'a> {
    /// Sends the request to the agent, whose socket is in `run_dir`. With a `uid`, the [`PodFacts`] of another pod of
    /// that name are rejected.
    pub fn start(run_dir: &'a Path, pod: &'a PodName, uid: Option<&'a str>, budget: LookupBudget) -> Self {
        let watch = Stopwatch::start();
        let request = agent::request(&run_dir.join(contract::AGENT_SOCKET), pod, uid, budget.agent);
        Self { run_dir, pod, uid, budget, watch, request }
    }

    /// Reads the agent's response. Opens no connection, so the calling thread may be in any netns.
    pub fn response(self) -> Result<Found, Box<NoAgentFacts<'a>>> {
        let Self { run_dir, pod, uid, budget, watch, request } = self;
        match facts_of(request, uid) {
            Ok(facts) => Ok(Found { facts, source: Source::Agent, attempts: 1 }),
            Err(miss) => Err(Box::new(NoAgentFacts { run_dir, pod, uid, budget, watch, miss })),
        }
    }
}

/// A lookup for which the agent returned no [`PodFacts`], and which can continue with the API server.
#[derive(Debug)]
pub struct NoAgentFacts<'a> {
    run_dir: &'a Path,
    pod: &'a PodName,
    uid: Option<&'a str>,
    budget: LookupBudget,
    watch: Stopwatch,
    miss: AgentMiss,
}

impl NoAgentFacts<'_> {
    /// Queries the API server with the kubeconfig in the run directory, then agent and API server in turns. Connects
    /// from the calling thread's netns, which must be the node's.
    pub fn fall_back_to_api(self) -> Result<Found, Error> {
        let Self { run_dir, pod, uid, budget, watch, miss: mut agent } = self;
        let left = || budget.total.saturating_sub(watch.elapsed());
        let (socket, kubeconfig) = (run_dir.join(contract::AGENT_SOCKET), run_dir.join(contract::KUBECONFIG));
        let mut policy = RetryPolicy::new(budget);
        loop {
            let attempts = policy.attempts + 1;
            let api = match get_from_api(&kubeconfig, pod, uid, budget.per_request.min(left())) {
                Ok(facts) => return Ok(Found { facts, source: Source::Api, attempts }),
                Err(miss) => miss,
            };
            let elapsed = watch.elapsed();
            match policy.after(api.outlook(), elapsed) {
                Step::Retry(wait) => pause(wait),
                Step::GiveUp => {
                    let (agent, api) = (Box::new(agent), Box::new(api));
                    return Err(Error { pod: pod.clone(), uid: uid.map(Into::into), attempts, elapsed, agent, api });
                }
            }
            let attempts = policy.attempts + 1;
            match facts_of(agent::request(&socket, pod, uid, budget.agent.min(left())), uid) {
                Ok(facts) => return Ok(Found { facts, source: Source::Agent, attempts }),
                Err(miss) => agent = miss,
            }
        }
    }
}

fn facts_of(request: Result<agent::Pending, agent::Error>, uid: Option<&str>) -> Result<PodFacts, AgentMiss> {
    match request.and_then(agent::Pending::response).map_err(AgentMiss::Failed)? {
        agent::Response::Known(facts) if has_uid(&facts, uid) => Ok(*facts),
        agent::Response::Known(facts) => Err(AgentMiss::OtherUid(facts.uid)),
        agent::Response::Unknown => Err(AgentMiss::Unknown),
    }
}

fn get_from_api(kubeconfig: &Path, pod: &PodName, uid: Option<&str>, limit: Duration) -> Result<PodFacts, ApiMiss> {
    let facts = api::get(kubeconfig, pod, limit).map_err(ApiMiss::Failed)?;
    if has_uid(&facts, uid) { Ok(facts) } else { Err(ApiMiss::OtherUid(facts.uid)) }
}

fn has_uid(facts: &PodFacts, uid: Option<&str>) -> bool {
    uid.is_none_or(|uid| uid == facts.uid)
}

/// The prospects of a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// The failure is temporary: a restart, a busy server, a broken connection.
    Temporary,
    /// The response will probably not change.
    Doubtful,
    /// The response will not change.
    Permanent,
}

impl ApiMiss {
    /// Classifies the failure of the API server, which alone determines whether a retry may help: the agent's cache may
    /// lack an existing pod, but the API server has every existing pod.
    pub fn outlook(&self) -> Outlook {
        match self {
            Self::OtherUid(_) => Outlook::Doubtful,
            Self::Failed(error) => match error {
                api::Error::Connect { .. } | api::Error::Exchange { .. } => Outlook::Temporary,
                // After a boot the agent writes the kubeconfig as soon as it starts; a sandbox that failed now would be
                // retried only after ten seconds or more.
                api::Error::Kubeconfig(kubeconfig::Error::Read { error, .. }) if is_absent(error) => Outlook::Temporary,
                api::Error::Refused { refusal: Refusal::Conflict | Refusal::Throttled | Refusal::Server, .. } => {
                    Outlook::Temporary
                }
                api::Error::Facts { error: ExtractError::Id { .. }, .. } => Outlook::Permanent,
                api::Error::Kubeconfig(_)
                | api::Error::Authorities(_)
                | api::Error::Tls { .. }
                | api::Error::Refused { .. }
                | api::Error::Facts { .. } => Outlook::Doubtful,
            },
        }
    }
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// The next step after a round in which neither source returned [`PodFacts`].
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
    attempts: u32,
    doubtful_since: Option<Duration>,
}

impl RetryPolicy {
    pub fn new(budget: LookupBudget) -> Self {
        Self { budget, attempts: 0, doubtful_since: None }
    }

    /// Decides after another round without [`PodFacts`], which ended `elapsed` after the start.
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

    #[test]
    fn temporary_and_permanent_failures_are_distinguished() {
        let failed = |api| {
            let agent = Box::new(AgentMiss::Unknown);
            let pod = PodName { namespace: "shop".into(), name: "web-0".into() };
            Error { pod, uid: None, attempts: 1, elapsed: ms(0), agent, api: Box::new(api) }.is_temporary()
        };
        let refused = |refusal| {
            let server = "127.0.0.1:1".parse().unwrap();
            failed(ApiMiss::Failed(api::Error::Refused { server, refusal, status: 0, message: String::new() }))
        };
        for refusal in [Refusal::Conflict, Refusal::Throttled, Refusal::Server, Refusal::Unauthorized] {
            assert!(refused(refusal), "{refusal:?}");
        }
        for refusal in [Refusal::Forbidden, Refusal::NotFound, Refusal::Other] {
            assert!(!refused(refusal), "{refusal:?}");
        }
        assert!(!failed(ApiMiss::OtherUid("x".into())));
        assert!(failed(ApiMiss::Failed(api::Error::Authorities("none".into()))));
    }

    #[test]
    fn outlook_of_each_refusal() {
        let refused = |refusal| {
            let server = "127.0.0.1:1".parse().unwrap();
            ApiMiss::Failed(api::Error::Refused { server, refusal, status: 0, message: String::new() }).outlook()
        };
        for refusal in [Refusal::Conflict, Refusal::Throttled, Refusal::Server] {
            assert_eq!(refused(refusal), Outlook::Temporary, "{refusal:?}");
        }
        for refusal in [Refusal::Unauthorized, Refusal::Forbidden, Refusal::NotFound, Refusal::Other] {
            assert_eq!(refused(refusal), Outlook::Doubtful, "{refusal:?}");
        }
        assert_eq!(ApiMiss::OtherUid("x".into()).outlook(), Outlook::Doubtful);
        let unread = |kind: io::ErrorKind| {
            let error = kubeconfig::Error::Read { path: "/run/x".into(), error: kind.into() };
            ApiMiss::Failed(api::Error::Kubeconfig(error)).outlook()
        };
        assert_eq!(unread(io::ErrorKind::NotFound), Outlook::Temporary, "the agent has not started yet");
        assert_eq!(unread(io::ErrorKind::PermissionDenied), Outlook::Doubtful);
    }
}
