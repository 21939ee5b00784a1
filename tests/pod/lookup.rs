//! Tests of a pod's lookup, which requests the pod's data from the agent and from the API server.

use std::path::Path;
use std::time::{Duration, Instant};

use istio_cni::pod::http::Error as Http;
use istio_cni::pod::lookup::{AgentMiss, ApiMiss, Error, Found, Lookup, LookupBudget, Source};
use istio_cni::pod::{PodName, agent, api};
use tempfile::TempDir;

use test_support::servers::{Agent, Api, Authority, Script, facts, pod, run_dir, status, web};

fn lookup(run_dir: &Path, pod: &PodName, uid: Option<&str>, budget: LookupBudget) -> Result<Found, Error> {
    Lookup::start(run_dir, pod, uid, budget).response().or_else(|lookup| lookup.fall_back_to_api())
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const BUDGET: LookupBudget =
    LookupBudget { agent: ms(400), per_request: ms(1_200), total: ms(5_000), doubtful: ms(500), backoff: ms(20) };

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
        look_in(self.dir.path())
    }
}

fn look_in(dir: &Path) -> Result<Found, Error> {
    lookup(dir, &web(), Some("u1"), BUDGET)
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
        let found = node.lookup().unwrap();
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
    let error = stale.lookup().unwrap_err();
    assert!(matches!(*error.agent, AgentMiss::OtherUid(ref uid) if uid == "newer"), "{error:?}");
    assert!(matches!(*error.api, ApiMiss::OtherUid(ref uid) if uid == "new"), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with("pod shop/web-0 (UID u1) could not be looked up, after "), "{text}");
    assert!(text.contains(r#"the API server has the pod with UID "new""#), "{text}");
}

#[test]
fn without_a_uid_the_name_is_enough() {
    let node = Node::new(vec![Script::respond(200, pod("any").to_string())]);
    assert_eq!(lookup(node.dir.path(), &web(), None, BUDGET).unwrap().facts.uid, "any");
}

#[test]
fn persistent_refusals_are_given_up_early() {
    for code in [401, 403, 404] {
        let patient = LookupBudget { total: ms(60_000), ..BUDGET };
        let node = Node::new(vec![status(code, "because")]);
        let start = Instant::now();
        let error = lookup(node.dir.path(), &web(), Some("u1"), patient).unwrap_err();
        assert!(start.elapsed() < ms(30_000), "{:?}", start.elapsed());
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
    let start = Instant::now();
    let error = node.lookup().unwrap_err();
    assert!(start.elapsed() <= BUDGET.total + ms(10_000), "{:?}", start.elapsed());
    assert!(error.attempts > 1, "{error}");
    assert!(
        matches!(*error.agent, AgentMiss::Failed(agent::Error::Exchange { error: Http::TimedOut, .. })),
        "{error:?}"
    );
    assert!(matches!(*error.api, ApiMiss::Failed(api::Error::Exchange { error: Http::TimedOut, .. })), "{error:?}");
}

#[test]
fn a_kubeconfig_that_appears_in_time_is_used() {
    let node = Node::new(vec![good()]);
    let (kubeconfig, hidden) = (node.dir.path().join("istio-cni-kubeconfig"), node.dir.path().join("hidden"));
    std::fs::rename(&kubeconfig, &hidden).unwrap();
    let missing = look_in(node.dir.path()).unwrap_err();
    assert!(missing.to_string().contains("is the istio-cni node agent running?"), "{missing}");

    // Each round of the lookup starts with a request to the agent, so the first request shows that the lookup has
    // begun.
    let agent = node.agent(vec![Script::respond(404, "")]);
    let patient = LookupBudget { doubtful: BUDGET.total, ..BUDGET };
    let found = std::thread::scope(|scope| {
        let asking = scope.spawn(|| lookup(node.dir.path(), &web(), Some("u1"), patient));
        let start = Instant::now();
        while agent.requests().is_empty() {
            assert!(start.elapsed() < ms(20_000), "no round has begun");
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
    let error = look_in(run_dir(api.address, Some(&ours.pem)).path()).unwrap_err();
    assert!(matches!(*error.api, ApiMiss::Failed(api::Error::Tls { .. })), "{error:?}");
    assert!(error.elapsed < ms(1_500), "{:?}", error.elapsed);
}
