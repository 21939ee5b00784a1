//! Tests of slow peers, invalid input and large numbers of peers: the server closes their connections and does not
//! delay others.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde_json::json;
use serve::http::Limits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use webhook::{AdmissionOutcome, ClusterState, Native, Review, Route, ServerSettings, Texts, istio};

use crate::stage::{Plan, Simple, patient, review};
use test_support::DEADLINE;
use test_support::api::Api;
use test_support::client::{Connection, NAME};

pub(crate) fn head(length: usize) -> String {
    format!(
        "POST /inject HTTP/1.1\r\nhost: {NAME}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// A time limit that silent peers reach in trials. It suffices for a handshake and a request on a busy machine.
pub(crate) const SHORT: Duration = Duration::from_secs(2);

fn short_limits() -> Limits {
    Limits { first: SHORT, read: SHORT, ..patient() }
}

pub(crate) async fn assert_serves(stage: &Simple) {
    let response = stage.connect().await.review("/inject", &review("v1", "after", "")).await.unwrap();
    assert_eq!(response["response"]["uid"], "after");
}

#[tokio::test]
async fn oversized_requests_are_refused() {
    let stage = Simple::start().await;
    let mut connection = stage.connect().await;
    let too_much = ServerSettings::limits().body + 1;
    connection.send(head(too_much).as_bytes()).await.unwrap();
    // The server may close the connection before it has read everything.
    let _ = connection.send(&vec![b' '; too_much]).await;
    assert_eq!(connection.read().await.unwrap().0, 413);

    let mut connection = stage.connect().await;
    let long = "x".repeat(70 << 10);
    let _ = connection.send(format!("POST /inject HTTP/1.1\r\nhost: {NAME}\r\nx: {long}\r\n\r\n").as_bytes()).await;
    assert_eq!(connection.read().await.unwrap().0, 431);
    assert_serves(&stage).await;
}

/// The size limit of a request is the same as istiod's.
#[tokio::test]
async fn six_mebibytes_are_accepted_and_one_byte_more_is_refused() {
    const BODY: usize = 6 << 20;
    let stage = Simple::start().await;
    let mut large = review("v1", "large", "");
    for (more, expected) in [(0, 200), (1, 413)] {
        large["request"]["object"]["metadata"]["annotations"]["x"] = "".into();
        let rest = BODY + more - large.to_string().len();
        large["request"]["object"]["metadata"]["annotations"]["x"] = "x".repeat(rest).into();
        let text = large.to_string();
        assert_eq!(text.len(), BODY + more);
        let mut connection = stage.connect().await;
        connection.send(head(text.len()).as_bytes()).await.unwrap();
        // The server may close the connection before it has read everything.
        let _ = connection.send(text.as_bytes()).await;
        let (status, response) = connection.read().await.unwrap();
        assert_eq!(status, expected, "{response}");
    }
}

#[tokio::test]
async fn slow_peers_are_disconnected() {
    let stage = Simple::limited(short_limits()).await;
    let mut silent = stage.connect().await;
    let mut half_head = stage.connect().await;
    half_head.send(b"POST /inject HTTP/1.1\r\nhost:").await.unwrap();
    let mut half_body = stage.connect().await;
    half_body.send(head(100).as_bytes()).await.unwrap();
    assert!(silent.is_closed().await, "a connection without a request ends");
    assert!(half_head.is_closed().await, "a head that never ends is given up");
    assert_eq!(half_body.read().await.unwrap().0, 408);
    stage.server.until("/metrics", r#"decisions_total{decision="refuse",reason="slow"} 1"#).await;
    assert_serves(&stage).await;
}

#[tokio::test]
async fn malformed_input_ends_only_its_own_connection() {
    let stage = Simple::limited(short_limits()).await;
    // One peer sends plain HTTP without TLS.
    let mut plain = TcpStream::connect(stage.server.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    let _ = plain.read_to_end(&mut rest).await;
    assert!(!rest.starts_with(b"HTTP"), "{rest:?}");
    // Peers send data other than HTTP over TLS.
    for bytes in [&b"\0\x01\x02\x03\r\n\r\n"[..], b"POST /inject HTTP/9.9\r\n\r\n", b"\r\n\r\n\r\n"] {
        let mut connection = stage.connect().await;
        connection.send(bytes).await.unwrap();
        assert!(connection.is_closed().await, "{bytes:?}");
    }
    // Peers send contradictory lengths, and a truncated body.
    let mut contradictory = stage.connect().await;
    let both = "POST /inject HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n";
    contradictory.send(both.as_bytes()).await.unwrap();
    assert_eq!(contradictory.read().await.unwrap().0, 400);
    let mut cut = stage.connect().await;
    cut.send(head(100).as_bytes()).await.unwrap();
    cut.send(b"{\"kind\":").await.unwrap();
    cut.0.shutdown().await.unwrap();
    drop(cut);
    assert_serves(&stage).await;
}

#[tokio::test]
async fn malformed_and_deeply_nested_json_gets_a_refusal() {
    let stage = Simple::start().await;
    let mut connection = stage.connect().await;
    let deep = "[".repeat(1 << 20);
    for body in [deep.as_str(), r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":7}"#, "\u{0}"]
    {
        let (status, text) = connection.post("/inject", body).await.unwrap();
        assert_eq!(status, 200);
        assert!(text.contains(r#""allowed":false"#), "{text}");
    }
    assert_serves(&stage).await;
}

#[tokio::test]
async fn two_hundred_stalled_connections_do_not_delay_others() {
    const CONNECTIONS: usize = 200;
    let stage = Simple::start().await;
    let mut connections = Vec::new();
    for n in 0..CONNECTIONS {
        match n % 3 {
            0 => {
                // A third of the peers never complete the TLS handshake.
                let mut plain = TcpStream::connect(stage.server.address).await.unwrap();
                plain.write_all(&[0x16, 0x03, 0x01]).await.unwrap();
                connections.push((Some(plain), None));
            }
            1 => {
                let mut connection = stage.connect().await;
                connection.send(b"POST /inject HT").await.unwrap();
                connections.push((None, Some(connection)));
            }
            _ => {
                let mut connection = stage.connect().await;
                connection.send(head(100).as_bytes()).await.unwrap();
                connections.push((None, Some(connection)));
            }
        }
    }
    let mut connection = stage.connect().await;
    for _ in 0..50 {
        connection.review("/inject", &review("v1", "u", "")).await.unwrap();
    }
    assert_eq!(connections.len(), CONNECTIONS);
}

#[tokio::test]
async fn connections_above_the_limit_wait_until_one_ends() {
    let stage = Simple::limited(Limits { connections: 4, ..short_limits() }).await;
    let mut connections = Vec::new();
    for _ in 0..4 {
        connections.push(stage.connect().await);
    }
    // The connection waits until silent peers are disconnected, and then gets a response.
    assert_serves(&stage).await;
    for connection in &mut connections {
        assert!(connection.is_closed().await);
    }
}

/// A route whose reviews run until they are released.
pub(crate) struct Held {
    pub(crate) started: Arc<AtomicUsize>,
    done: Arc<AtomicUsize>,
    pub(crate) release: Arc<AtomicBool>,
}

impl Held {
    pub(crate) fn new() -> Self {
        Self { started: Arc::default(), done: Arc::default(), release: Arc::default() }
    }

    pub(crate) fn route(&self) -> Route {
        let (started, done, release) = (Arc::clone(&self.started), Arc::clone(&self.done), Arc::clone(&self.release));
        let review = move |review: &Review| {
            started.fetch_add(1, Ordering::SeqCst);
            let mut budget = review.budget.clone();
            let ended = loop {
                match budget.step(0) {
                    Err(exceeded) => break exceeded.to_string(),
                    Ok(()) if release.load(Ordering::SeqCst) => break "let go".to_owned(),
                    Ok(()) => std::thread::yield_now(),
                }
            };
            done.fetch_add(1, Ordering::SeqCst);
            AdmissionOutcome::refused("held", ended)
        };
        Route { path: "/held", below: false, profile: Arc::new(review) }
    }

    pub(crate) async fn until(&self, what: &str, count: &AtomicUsize, wanted: usize) {
        let deadline = tokio::time::Instant::now() + DEADLINE;
        while count.load(Ordering::SeqCst) < wanted {
            assert!(tokio::time::Instant::now() < deadline, "{} reviews {what}", count.load(Ordering::SeqCst));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release.store(true, Ordering::SeqCst);
    }
}

/// Returns the reason of a refused review.
async fn refusal(mut connection: Connection) -> String {
    let response = connection.review("/held", &review("v1", "u", "")).await.unwrap();
    assert_eq!(response["response"]["allowed"], false, "{response}");
    response["response"]["status"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn probes_get_responses_while_reviews_run() {
    let held = Held::new();
    let stage = Simple::planned(|plan| Plan { routes: vec![held.route()], ..plan }).await;
    let mut reviews = Vec::new();
    for _ in 0..8 {
        reviews.push(tokio::spawn(refusal(stage.connect().await)));
    }
    held.until("have started", &held.started, 1).await;
    for path in ["/healthz", "/readyz", "/metrics"] {
        stage.server.until(path, "200 OK").await;
    }
    // Connections are accepted, and requests without reviews get responses, too.
    assert_eq!(stage.connect().await.post("/nowhere", "{}").await.unwrap().0, 404);
    assert_eq!(held.done.load(Ordering::SeqCst), 0, "no review has ended meanwhile");
    held.release.store(true, Ordering::SeqCst);
    for review in reviews {
        assert_eq!(review.await.unwrap(), "let go");
    }
}

#[tokio::test]
async fn the_time_limit_ends_a_running_review() {
    let held = Held::new();
    let limits = Limits { request: Duration::from_secs(2), ..patient() };
    let stage = Simple::planned(|plan| Plan { routes: vec![held.route()], limits, ..plan }).await;
    assert_eq!(refusal(stage.connect().await).await, "processing takes longer than its time limit");
    assert_eq!(held.done.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_review_without_a_thread_is_refused_in_time_and_counted() {
    let held = Held::new();
    let stage = Simple::planned(|plan| Plan { routes: vec![held.route()], ..plan }).await;
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut running = Vec::new();
    for _ in 0..processors {
        running.push(tokio::spawn(refusal(stage.connect().await)));
    }
    held.until("have started", &held.started, processors).await;
    let unlimited = tokio::spawn(refusal(stage.connect().await));
    let mut waiting = stage.connect().await;
    // The API server passes its timeout in the query.
    waiting.send_review("/held?timeout=1s", &review("v1", "u", "").to_string()).await.unwrap();
    let (status, head, said) = waiting.read_with_head().await.unwrap();
    assert_eq!((status, said.contains("ended while others ran")), (503, true), "{said}");
    // API servers repeat a request after a 503 with this header, on a new connection to any replica.
    assert!(head.contains("retry-after: 1\r\n") && head.contains("connection: close\r\n"), "{head}");
    assert_eq!(held.started.load(Ordering::SeqCst), processors, "the refused review has not started");
    stage.server.until("/metrics", r#"sidecar_injection_decisions_total{decision="refuse",reason="turn"} 1"#).await;
    assert!(!unlimited.is_finished(), "a longer timeout of the API server is respected");
    held.release.store(true, Ordering::SeqCst);
    for review in running.into_iter().chain([unlimited]) {
        assert_eq!(review.await.unwrap(), "let go");
    }
}

#[tokio::test]
async fn any_timeout_parameter_gets_a_response() {
    let stage = Simple::start().await;
    for seconds in ["18446744073709551615", "18446744073709551616", "-1", "x"] {
        let path = format!("/inject?timeout={seconds}s");
        let response = stage.connect().await.review(&path, &review("v1", "u", "")).await.expect(seconds);
        assert_eq!(response["response"]["uid"], "u", "{seconds}");
    }
}

#[tokio::test]
async fn a_pod_that_exceeds_the_budget_while_it_is_read_is_refused_as_one_that_does_later() {
    let api = Api::start().await;
    let route = Route {
        path: "/later",
        below: false,
        profile: Arc::new(|_: &Review| -> AdmissionOutcome { panic!("reviewed") }),
    };
    let stage = Simple::planned(|plan| Plan { routes: vec![route], events: Some(api.client()), ..plan }).await;
    let mut large = review("v1", "large", "");
    large["request"]["object"]["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web-uid", "controller": true }]);
    large["request"]["object"]["spec"]["containers"] = vec![json!({ "name": "a" }); 150_000].into();
    let mut connection = stage.connect().await;
    // The API server writes the member `dryRun` after the object.
    let mut dry = large.clone();
    dry["request"]["dryRun"] = true.into();
    dry["request"]["object"]["metadata"]["ownerReferences"][0]["name"] = "dry".into();
    for body in [&dry, &large] {
        let response = connection.review("/later", body).await.unwrap();
        let response = &response["response"];
        assert_eq!((&response["uid"], &response["allowed"]), (&"large".into(), &false.into()), "{response}");
        let reason = response["status"]["message"].as_str().unwrap();
        assert!(reason.contains("processing takes more than 1000000 steps"), "{reason}");
        assert_eq!(response["auditAnnotations"], json!({ "decision": "refuse", "reason": reason }));
    }
    stage.server.until("/metrics", r#"decisions_total{decision="refuse",reason="budget"} 2"#).await;
    let event = api.until("an Event", |api| api.list("events").into_iter().next()).await;
    assert_eq!(
        (&event["reason"], &event["involvedObject"]["name"]),
        (&"SidecarInjectionRefused".into(), &"web".into())
    );
}

#[tokio::test]
async fn a_review_ends_with_its_connection() {
    let held = Held::new();
    let limits = ServerSettings::limits();
    let stage = Simple::planned(|plan| Plan { routes: vec![held.route()], limits, ..plan }).await;
    let mut connection = stage.connect().await;
    connection.send_review("/held", &review("v1", "u", "").to_string()).await.unwrap();
    held.until("have started", &held.started, 1).await;
    connection.0.get_mut().0.set_zero_linger().unwrap();
    drop(connection);
    held.until("have ended", &held.done, 1).await;
}

#[tokio::test]
async fn a_review_that_fails_ends_its_own_request_and_no_other() {
    let broken = |_: &Review| -> AdmissionOutcome { panic!("a defect") };
    let route = Route { path: "/broken", below: false, profile: Arc::new(broken) };
    let stage = Simple::planned(|plan| Plan { routes: vec![route], ..plan }).await;
    let body = review("v1", "u", "").to_string();
    assert_eq!(stage.connect().await.post("/broken", &body).await.unwrap().0, 500);
    assert_serves(&stage).await;
}

/// Returns the processor time of this thread in milliseconds.
fn cpu() -> i64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    (usage.user_time() + usage.system_time()).num_milliseconds()
}

/// Asserts that the processor time of `run` is roughly in proportion to its argument, in one of several attempts, because other
/// load adds to a single one. A quadratic implementation takes a hundred times as long for a tenfold argument in each attempt.
pub(crate) fn assert_in_proportion(count: usize, mut run: impl FnMut(usize)) {
    let mut timed = |count| {
        let begin = cpu();
        run(count);
        cpu() - begin
    };
    let mut attempts = Vec::new();
    while attempts.len() < 10 {
        let (few, many) = (timed(count), timed(10 * count));
        if many < 40 * few.max(10) {
            return;
        }
        attempts.push((few, many));
    }
    panic!("{attempts:?} ms for {count} and {}", 10 * count);
}

#[test]
fn lists_that_are_merged_take_time_in_proportion_to_their_length() {
    let profile = istio::build(istio::Options::default(), ClusterState::new(Native::Off))(&Texts::default()).unwrap();
    assert_in_proportion(600, |count| {
        let env: Vec<_> = (0..count).map(|n| json!({ "name": format!("E{n}"), "value": "v" })).collect();
        let mut body = review("v1", "u", "");
        let own = json!({ "name": "istio-proxy", "env": env });
        body["request"]["object"]["spec"] = json!({ "containers": [{ "name": "app", "image": "i" }, own] });
        let body = body.to_string();
        let outcome = profile.review(&Review::parse(body.as_bytes(), BTreeMap::new()).unwrap());
        assert_eq!(outcome.rule, "policy", "{}", outcome.reason);
    });
}
