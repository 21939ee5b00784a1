//! A pod's facts from whoever has them: the agent first, then the API server, again until the budget is spent.
//!
//! `plugin` puts a [`Question`] for pods that may have a sidecar, and insists where the agent has no answer. [`Patience`]
//! decides whether another round is worth it and knows no clock. It fails closed: no facts is an error, never "no sidecar".

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::api::{self, Refusal};
use super::deadline::{Stopwatch, pause};
use super::{ExtractError, PodFacts, PodName, agent, kubeconfig};
use crate::contract;

/// How long a sandbox may wait for facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupBudget {
    /// One question to the agent, which may wait itself for a pod that it does not know yet.
    pub agent: Duration,
    /// One question to the API server.
    pub per_request: Duration,
    /// All questions and pauses together.
    pub total: Duration,
    /// How long an answer is asked again that will probably not change: no such pod, another pod of that name, no
    /// permission, a kubeconfig that is of no use. A token may be rotating.
    pub doubtful: Duration,
    /// The first pause between two rounds; each is twice as long as the one before, up to the eightfold.
    pub backoff: Duration,
}

impl Default for LookupBudget {
    /// Well below the two to four minutes that kubelets give a sandbox, and bounded where Istio's thirty attempts
    /// are not.
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

/// Who has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The node's agent.
    Agent,
    /// The API server.
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

/// Facts, and how they were come by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The facts, of the pod with the UID that was asked for.
    pub facts: PodFacts,
    /// Who had them.
    pub source: Source,
    /// Rounds, from 1.
    pub attempts: u32,
}

/// Why the agent was of no use.
#[derive(Debug, thiserror::Error)]
pub enum AgentMiss {
    /// It did not answer.
    #[error("{0}")]
    Failed(agent::Error),
    /// It has no such pod.
    #[error("the agent does not know the pod")]
    Unknown,
    /// It has another pod of that name: its cache is behind, or this sandbox is.
    #[error("the agent knows the pod with UID {0:?}")]
    OtherUid(String),
}

/// Why the API server was of no use.
#[derive(Debug, thiserror::Error)]
pub enum ApiMiss {
    /// It did not answer with facts.
    #[error("{0}")]
    Failed(api::Error),
    /// It has another pod of that name.
    #[error("the API server has the pod with UID {0:?}: the pod of this sandbox was replaced")]
    OtherUid(String),
}

/// Nobody has facts. The last round's reasons.
#[derive(Debug, thiserror::Error)]
#[error("no facts about pod {pod}{} after {attempts} attempts in {:.1} s: {agent}; {api}",
    .uid.as_ref().map(|uid| format!(" (UID {uid})")).unwrap_or_default(), .elapsed.as_secs_f64())]
pub struct Error {
    /// The pod.
    pub pod: PodName,
    /// The UID that the runtime gave.
    pub uid: Option<String>,
    /// Rounds.
    pub attempts: u32,
    /// How long it took.
    pub elapsed: Duration,
    /// Why the agent was of no use.
    pub agent: Box<AgentMiss>,
    /// Why the API server was of no use.
    pub api: Box<ApiMiss>,
}

impl Error {
    /// The same may pass next time: whoever knows pods was not there, was busy, or did not take the token yet. Where the
    /// API server says that there is no such pod, nothing will change.
    pub fn is_passing(&self) -> bool {
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

/// A question about a pod, put to the agent: its answer comes while the asker does something else.
#[derive(Debug)]
pub struct Question<'a> {
    run_dir: &'a Path,
    pod: &'a PodName,
    uid: Option<&'a str>,
    budget: LookupBudget,
    watch: Stopwatch,
    asked: Result<agent::Asked, agent::Error>,
}

impl<'a> Question<'a> {
    /// Asks the agent, whose socket is in `run_dir`. With a `uid`, facts of a namesake are not facts.
    pub fn put(run_dir: &'a Path, pod: &'a PodName, uid: Option<&'a str>, budget: LookupBudget) -> Self {
        let watch = Stopwatch::start();
        let asked = agent::ask(&run_dir.join(contract::AGENT_SOCKET), pod, uid, budget.agent);
        Self { run_dir, pod, uid, budget, watch, asked }
    }

    /// The agent's answer. Makes no connection, so that the calling thread may be in any netns.
    pub fn answer(self) -> Result<Found, Box<Unanswered<'a>>> {
        let Self { run_dir, pod, uid, budget, watch, asked } = self;
        match facts_of(asked, uid) {
            Ok(facts) => Ok(Found { facts, source: Source::Agent, attempts: 1 }),
            Err(miss) => Err(Box::new(Unanswered { run_dir, pod, uid, budget, watch, miss })),
        }
    }
}

/// A question to which the agent had no answer, yet.
#[derive(Debug)]
pub struct Unanswered<'a> {
    run_dir: &'a Path,
    pod: &'a PodName,
    uid: Option<&'a str>,
    budget: LookupBudget,
    watch: Stopwatch,
    miss: AgentMiss,
}

impl Unanswered<'_> {
    /// Asks the API server, with the kubeconfig in the run directory, and then both in turns. Connects from the calling
    /// thread's netns, which must be the node's.
    pub fn insist(self) -> Result<Found, Error> {
        let Self { run_dir, pod, uid, budget, watch, miss: mut agent } = self;
        let left = || budget.total.saturating_sub(watch.elapsed());
        let (socket, kubeconfig) = (run_dir.join(contract::AGENT_SOCKET), run_dir.join(contract::KUBECONFIG));
        let mut patience = Patience::new(budget);
        loop {
            let attempts = patience.attempts + 1;
            let api = match ask_api(&kubeconfig, pod, uid, budget.per_request.min(left())) {
                Ok(facts) => return Ok(Found { facts, source: Source::Api, attempts }),
                Err(miss) => miss,
            };
            let elapsed = watch.elapsed();
            match patience.after(api.outlook(), elapsed) {
                Step::Again(wait) => pause(wait),
                Step::GiveUp => {
                    let (agent, api) = (Box::new(agent), Box::new(api));
                    return Err(Error { pod: pod.clone(), uid: uid.map(Into::into), attempts, elapsed, agent, api });
                }
            }
            let attempts = patience.attempts + 1;
            match facts_of(agent::ask(&socket, pod, uid, budget.agent.min(left())), uid) {
                Ok(facts) => return Ok(Found { facts, source: Source::Agent, attempts }),
                Err(miss) => agent = miss,
            }
        }
    }
}

fn facts_of(asked: Result<agent::Asked, agent::Error>, uid: Option<&str>) -> Result<PodFacts, AgentMiss> {
    match asked.and_then(agent::Asked::answer).map_err(AgentMiss::Failed)? {
        agent::Answer::Known(facts) if is_of(&facts, uid) => Ok(facts),
        agent::Answer::Known(facts) => Err(AgentMiss::OtherUid(facts.uid)),
        agent::Answer::Unknown => Err(AgentMiss::Unknown),
    }
}

fn ask_api(kubeconfig: &Path, pod: &PodName, uid: Option<&str>, limit: Duration) -> Result<PodFacts, ApiMiss> {
    let facts = api::get(kubeconfig, pod, limit).map_err(ApiMiss::Failed)?;
    if is_of(&facts, uid) { Ok(facts) } else { Err(ApiMiss::OtherUid(facts.uid)) }
}

fn is_of(facts: &PodFacts, uid: Option<&str>) -> bool {
    uid.is_none_or(|uid| uid == facts.uid)
}

/// What may be expected of asking again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// A failure that passes: a restart, a busy server, a broken connection.
    Passing,
    /// An answer that probably stays as it is.
    Doubtful,
    /// An answer that stays as it is.
    Final,
}

impl ApiMiss {
    /// The API server decides whether to go on: it is the one that must know the pod.
    pub fn outlook(&self) -> Outlook {
        match self {
            Self::OtherUid(_) => Outlook::Doubtful,
            Self::Failed(error) => match error {
                api::Error::Connect { .. } | api::Error::Exchange { .. } => Outlook::Passing,
                // The node has just booted, and the agent writes it as soon as it starts: a sandbox that failed now would
                // be tried again after ten seconds or more.
                api::Error::Kubeconfig(kubeconfig::Error::Read { error, .. }) if is_absent(error) => Outlook::Passing,
                api::Error::Refused { refusal: Refusal::Conflict | Refusal::Throttled | Refusal::Server, .. } => {
                    Outlook::Passing
                }
                api::Error::Facts { error: ExtractError::Id { .. }, .. } => Outlook::Final,
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

/// What to do after a round in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Wait, then ask again.
    Again(Duration),
    /// The budget is spent, or asking again cannot help.
    GiveUp,
}

/// Decides how long to go on.
#[derive(Debug)]
pub struct Patience {
    budget: LookupBudget,
    attempts: u32,
    doubtful_since: Option<Duration>,
}

impl Patience {
    /// Nothing asked yet.
    pub fn new(budget: LookupBudget) -> Self {
        Self { budget, attempts: 0, doubtful_since: None }
    }

    /// After one more round in vain, `elapsed` after the start.
    pub fn after(&mut self, outlook: Outlook, elapsed: Duration) -> Step {
        let wait = self.budget.backoff * (1 << self.attempts.min(3));
        self.attempts += 1;
        let end = match outlook {
            Outlook::Final => return Step::GiveUp,
            Outlook::Doubtful => *self.doubtful_since.get_or_insert(elapsed) + self.budget.doubtful,
            Outlook::Passing => {
                self.doubtful_since = None;
                self.budget.total
            }
        };
        if elapsed + wait < end.min(self.budget.total) { Step::Again(wait) } else { Step::GiveUp }
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

    /// Asks in vain with rounds that take no time; the pauses, and when it gave up.
    fn pauses(outlook: Outlook) -> (Vec<u128>, u128) {
        let (mut patience, mut now, mut pauses) = (Patience::new(BUDGET), Duration::ZERO, Vec::new());
        while let Step::Again(wait) = patience.after(outlook, now) {
            pauses.push(wait.as_millis());
            now += wait;
        }
        (pauses, now.as_millis())
    }

    #[test]
    fn pauses_grow_to_the_eightfold_within_the_total() {
        let (pauses, end) = pauses(Outlook::Passing);
        assert_eq!(pauses[..6], [100, 200, 400, 800, 800, 800]);
        assert!((9_000..10_000).contains(&end), "{end}");
    }

    #[test]
    fn doubtful_answers_have_a_budget_of_their_own() {
        assert_eq!(pauses(Outlook::Doubtful), (vec![100, 200, 400, 800], 1_500));
    }

    #[test]
    fn the_doubtful_budget_starts_with_the_first_doubtful_answer_in_a_row() {
        let mut patience = Patience::new(BUDGET);
        assert_eq!(patience.after(Outlook::Doubtful, ms(0)), Step::Again(ms(100)));
        assert_eq!(patience.after(Outlook::Passing, ms(1_900)), Step::Again(ms(200)));
        assert_eq!(patience.after(Outlook::Doubtful, ms(5_000)), Step::Again(ms(400)));
        assert_eq!(patience.after(Outlook::Doubtful, ms(6_100)), Step::Again(ms(800)));
        assert_eq!(patience.after(Outlook::Doubtful, ms(6_900)), Step::GiveUp);
    }

    #[test]
    fn a_final_answer_is_not_asked_again() {
        assert_eq!(pauses(Outlook::Final), (vec![], 0));
    }

    #[test]
    fn no_pause_reaches_beyond_the_total() {
        let mut patience = Patience::new(BUDGET);
        assert_eq!(patience.after(Outlook::Passing, ms(9_900)), Step::GiveUp);
    }

    #[test]
    fn what_may_pass_is_told_from_what_stays() {
        let failed = |api| {
            let agent = Box::new(AgentMiss::Unknown);
            let pod = PodName { namespace: "shop".into(), name: "web-0".into() };
            Error { pod, uid: None, attempts: 1, elapsed: ms(0), agent, api: Box::new(api) }.is_passing()
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
    fn refusals_are_told_apart() {
        let refused = |refusal| {
            let server = "127.0.0.1:1".parse().unwrap();
            ApiMiss::Failed(api::Error::Refused { server, refusal, status: 0, message: String::new() }).outlook()
        };
        for refusal in [Refusal::Conflict, Refusal::Throttled, Refusal::Server] {
            assert_eq!(refused(refusal), Outlook::Passing, "{refusal:?}");
        }
        for refusal in [Refusal::Unauthorized, Refusal::Forbidden, Refusal::NotFound, Refusal::Other] {
            assert_eq!(refused(refusal), Outlook::Doubtful, "{refusal:?}");
        }
        assert_eq!(ApiMiss::OtherUid("x".into()).outlook(), Outlook::Doubtful);
        let unread = |kind: io::ErrorKind| {
            let error = kubeconfig::Error::Read { path: "/run/x".into(), error: kind.into() };
            ApiMiss::Failed(api::Error::Kubeconfig(error)).outlook()
        };
        assert_eq!(unread(io::ErrorKind::NotFound), Outlook::Passing, "the agent has not started yet");
        assert_eq!(unread(io::ErrorKind::PermissionDenied), Outlook::Doubtful);
    }
}
