//! Looks up a pod's [`PodFacts`]: from the agent's socket first, then from the API server, until the time limits are reached.
//!
//! The plugin starts a [`Lookup`] for pods that may have a sidecar, and falls back to the API server if the agent returns
//! no [`PodFacts`]. [`RetryPolicy`] decides whether to try again. A lookup that finds nothing is an error, never "no sidecar".
//! This crate makes no decision about the pod, and never resolves a host name: a static binary would load the host's NSS modules
//! for that.

pub mod agent;
pub mod api;
mod deadline;
pub mod http;
pub mod kubeconfig;
mod retry;

pub use retry::{LookupBudget, Outlook, RetryPolicy, Step};

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use podfacts::{ExtractError, PodFacts, PodName};

use api::Refusal;
use deadline::{Stopwatch, pause};

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
    /// The number of rounds, at least 1. A round requests the facts from the agent and then from the API server.
    pub attempts: u32,
}

/// Why the agent returned no [`PodFacts`].
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

/// Why the API server returned no [`PodFacts`].
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
    /// The number of rounds.
    pub attempts: u32,
    pub elapsed: Duration,
    pub agent: Box<AgentMiss>,
    pub api: Box<ApiMiss>,
}

fn rounds(number: u32) -> String {
    format!("{number} attempt{}", if number == 1 { "" } else { "s" })
}

impl Error {
    /// Whether a retry by the runtime may succeed, which depends only on the API server's failure: true if the connection
    /// failed, the server was busy or did not accept the token, or the kubeconfig is unusable; false if the server refused
    /// the request otherwise, such as with 404, or returned an invalid pod or another pod of that name.
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

/// A lookup whose request was sent to the agent. The caller can do other work before it reads the response.
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
    /// Queries the API server with the kubeconfig in the run directory, then the agent and the API server alternately.
    /// Connects from the calling thread's netns, which must be the node's.
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

impl ApiMiss {
    /// Classifies the failure of the API server, which alone determines whether a retry may help: the agent's cache may
    /// lack an existing pod, but the API server has every existing pod.
    pub fn outlook(&self) -> Outlook {
        match self {
            Self::OtherUid(_) => Outlook::Doubtful,
            Self::Failed(error) => match error {
                api::Error::Connect { .. } | api::Error::Exchange { .. } => Outlook::Temporary,
                // After a boot the agent writes the kubeconfig as soon as it starts; if this sandbox failed now, it would
                // be retried only after ten seconds or more.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_and_permanent_failures_are_distinguished() {
        let failed = |api| {
            let agent = Box::new(AgentMiss::Unknown);
            let pod = PodName { namespace: "shop".into(), name: "web-0".into() };
            Error { pod, uid: None, attempts: 1, elapsed: Duration::ZERO, agent, api: Box::new(api) }.is_temporary()
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
