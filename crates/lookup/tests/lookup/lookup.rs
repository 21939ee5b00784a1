//! Tests of a pod's lookup, which requests the pod's data from the agent and from the API server.

use std::path::Path;
use std::time::{Duration, Instant};

use lookup::http::Error as Http;
use lookup::{AgentMiss, ApiMiss, Error, Found, Lookup, LookupBudget, Source};
use lookup::{agent, api};
use podfacts::PodName;
use tempfile::TempDir;

use test_servers::{Agent, Api, Authority, DEADLINE, Script, facts, pod, run_dir, status, web};

fn lookup(run_dir: &Path, pod: &PodName, uid: Option<&str>, budget: LookupBudget) -> Result<Found, Error> {
    Lookup::start(run_dir, pod, uid, budget).response().or_else(|lookup| lookup.fall_back_to_api())
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A budget whose time limits no test reaches.
const AMPLE: LookupBudget = LookupBudget {
    agent: DEADLINE,
    per_request: DEADLINE,
    total: Duration::from_secs(4 * DEADLINE.as_secs()),
    doubtful: DEADLINE,
    backoff: ms(20),
};
/// A budget that gives up early on failures that will probably persist.
const DECIDED: LookupBudget = LookupBudget { doubtful: ms(500), ..AMPLE };

/// A run directory with doubles of the API server and the agent.
struct Node {
    api: Api,
    dir: TempDir,
}

impl Node {
    fn new(scripts: Vec<Script>) -> Self {
        let authority = Authority::new();
        let api = Api::start(&authority, scripts);
        let dir = run_dir(api.address, Some(&authority.pem));
        Self { api, dir }
    }

    fn agent(&self, scripts: Vec<Script>) -> Agent {
        Agent::start(self.dir.path(), scripts)
    }

    fn lookup(&self) -> Result<Found, Error> {
        self.lookup_within(AMPLE)
    }

    fn lookup_within(&self, budget: LookupBudget) -> Result<Found, Error> {
        look_in(self.dir.path(), budget)
    }
}

fn look_in(dir: &Path, budget: LookupBudget) -> Result<Found, Error> {
    lookup(dir, &web(), Some("u1"), budget)
}

fn good() -> Script {
    Script::respond(200, pod("u1").to_string())
}

#[test]
fn the_agent_is_asked_first() {
    let node = Node::new(vec![good()]);
    let agent = node.agent(vec![Script::respond(200, facts("u1"))]);
    let found = node.lookup().unwrap();
    assert_eq!((found.source, found.attempts, found.facts.uid.as_str()), (Source::Agent, 1, "u1"));
    assert_eq!((agent.requests().len(), node.api.requests().len()), (1, 0));
    assert!(agent.requests()[0].contains("uid=u1"));
}

#[test]
fn the_lookup_falls_back_to_the_api_server() {
    for script in [
        Script::respond(404, ""),
        Script::respond(503, "not yet"),
        Script::respond(200, "garbage"),
        Script::respond(200, facts("another")),
        Script::Send(b"HTTP/1.1 200 OK\r\n".to_vec()),
        Script::Hold(vec![]),
    ] {
        let node = Node::new(vec![good()]);
        let _agent = node.agent(vec![script]);
        let found = node.lookup_within(LookupBudget { agent: ms(400), ..AMPLE }).unwrap();
        assert_eq!((found.source, found.attempts, found.facts.uid.as_str()), (Source::Api, 1, "u1"));
    }
    let alone = Node::new(vec![good()]).lookup().unwrap();
    assert_eq!((alone.source, alone.attempts), (Source::Api, 1));
}

#[test]
fn temporary_and_doubtful_failures_are_retried() {
    for code in [401, 403, 404, 409, 429, 500] {
        let found = Node::new(vec![status(code, "x"), status(code, "x"), good()]).lookup().unwrap();
        assert_eq!((found.source, found.attempts), (Source::Api, 3), "{code}");
    }
    let broken = Script::Send(b"HTTP/1.1 200 OK\r\n".to_vec());
    assert_eq!(Node::new(vec![broken, good()]).lookup().unwrap().attempts, 2);
}

#[test]
fn an_agent_that_comes_back_is_used() {
    let node = Node::new(vec![status(500, "x")]);
    let _agent = node.agent(vec![Script::respond(503, ""), Script::respond(200, facts("u1"))]);
    let found = node.lookup().unwrap();
    assert_eq!((found.source, found.attempts), (Source::Agent, 2));
}

#[test]
fn another_pod_of_the_name_is_retried_and_then_refused() {
    let replaced = Node::new(vec![Script::respond(200, pod("old").to_string()), good()]);
    assert_eq!(replaced.lookup().unwrap().attempts, 2);

    let stale = Node::new(vec![Script::respond(200, pod("new").to_string())]);
    let _agent = stale.agent(vec![Script::respond(200, facts("newer"))]);
    let error = stale.lookup_within(DECIDED).unwrap_err();
    assert!(matches!(*error.agent, AgentMiss::OtherUid(ref uid) if uid == "newer"), "{error:?}");
    assert!(matches!(*error.api, ApiMiss::OtherUid(ref uid) if uid == "new"), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with("pod shop/web-0 (UID u1) could not be looked up, after "), "{text}");
    assert!(text.contains(r#"the API server has the pod with UID "new""#), "{text}");
}

#[test]
fn without_a_uid_the_name_is_enough() {
    let node = Node::new(vec![Script::respond(200, pod("any").to_string())]);
    assert_eq!(lookup(node.dir.path(), &web(), None, AMPLE).unwrap().facts.uid, "any");
}

#[test]
fn persistent_refusals_are_given_up_early() {
    for code in [401, 403, 404] {
        let node = Node::new(vec![status(code, "because")]);
        let error = node.lookup_within(DECIDED).unwrap_err();
        assert!(error.elapsed < DECIDED.total, "{:?}", error.elapsed);
        assert!(error.attempts > 1 && error.to_string().contains(&format!("responds with {code}: because")), "{error}");
        assert!(matches!(*error.agent, AgentMiss::Failed(agent::Error::Absent { .. })), "{error:?}");
    }
}

#[test]
fn a_pod_with_an_invalid_id_is_not_retried() {
    let mut bad = pod("u1");
    bad["spec"]["containers"][1]["securityContext"] = serde_json::json!({"runAsUser": -2});
    let error = Node::new(vec![Script::respond(200, bad.to_string())]).lookup().unwrap_err();
    assert_eq!(error.attempts, 1);
    assert!(error.to_string().contains("runAsUser=-2"), "{error}");
}

#[test]
fn the_total_budget_ends_every_wait() {
    let node = Node::new(vec![Script::Hold(vec![])]);
    let _agent = node.agent(vec![Script::Hold(vec![])]);
    let rounds = LookupBudget { agent: ms(100), per_request: ms(400), total: ms(5_000), ..AMPLE };
    let error = node.lookup_within(rounds).unwrap_err();
    assert!(error.attempts > 1, "{error}");
    assert!(
        matches!(*error.agent, AgentMiss::Failed(agent::Error::Exchange { error: Http::TimedOut, .. })),
        "{error:?}"
    );
    assert!(matches!(*error.api, ApiMiss::Failed(api::Error::Exchange { error: Http::TimedOut, .. })), "{error:?}");
    // The total ends a wait that could otherwise last longer.
    let error = node.lookup_within(LookupBudget { agent: ms(100), total: ms(1_000), ..AMPLE }).unwrap_err();
    assert!(error.elapsed < AMPLE.per_request, "{:?}", error.elapsed);
}

#[test]
fn a_kubeconfig_that_appears_in_time_is_used() {
    let node = Node::new(vec![good()]);
    let (kubeconfig, hidden) = (node.dir.path().join("istio-cni-kubeconfig"), node.dir.path().join("hidden"));
    std::fs::rename(&kubeconfig, &hidden).unwrap();
    let missing = look_in(node.dir.path(), LookupBudget { total: ms(1_000), ..AMPLE }).unwrap_err();
    assert!(missing.to_string().contains("is the istio-cni node agent running?"), "{missing}");

    // Each round of the lookup starts with a request to the agent, so the first request shows that the lookup has
    // begun.
    let agent = node.agent(vec![Script::respond(404, "")]);
    let found = std::thread::scope(|scope| {
        let asking = scope.spawn(|| lookup(node.dir.path(), &web(), Some("u1"), AMPLE));
        let start = Instant::now();
        while agent.requests().is_empty() {
            assert!(start.elapsed() < DEADLINE, "no round has begun");
            std::thread::yield_now();
        }
        std::fs::rename(&hidden, &kubeconfig).unwrap();
        asking.join().unwrap()
    });
    assert_eq!(found.unwrap().source, Source::Api);
}

#[test]
fn the_wrong_authority_is_given_up_early() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let api = Api::start(&theirs, vec![good()]);
    let error = look_in(run_dir(api.address, Some(&ours.pem)).path(), DECIDED).unwrap_err();
    assert!(matches!(*error.api, ApiMiss::Failed(api::Error::Tls { .. })), "{error:?}");
    assert!(error.elapsed < DECIDED.total, "{:?}", error.elapsed);
}
