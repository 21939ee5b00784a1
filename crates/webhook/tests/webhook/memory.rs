//! Tests of the memory limit for request bodies: incomplete bodies, reviews in progress, and valid reviews at the same time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use serve::http::Limits;
use tokio::task::JoinSet;
use webhook::ServerSettings;

use crate::hostile::{Held, assert_serves, head};
use crate::program::Program;
use crate::stage::{Plan, Simple, bundles, get, patient, review, webhook_configuration};
use test_support::DEADLINE;
use test_support::api::Api;
use test_support::client::{Connection, trusting};

const MIB: usize = 1 << 20;
const REFUSED: &str = r#"sidecar_injection_decisions_total{decision="refuse",reason="memory"}"#;

/// Returns a review whose body has this size.
fn large(bytes: usize) -> String {
    let sized = |annotation: usize| {
        let mut review = review("v1", "large", "");
        review["request"]["object"]["metadata"]["annotations"]["x"] = "x".repeat(annotation).into();
        review.to_string()
    };
    sized(bytes - sized(0).len())
}

/// Starts peers that each announce a body of `announced` bytes, send `sent` of them and wait for the response, until the
/// value is dropped.
fn slow_peers(
    count: usize,
    announced: usize,
    sent: usize,
    address: SocketAddr,
    client: &Arc<rustls::ClientConfig>,
) -> JoinSet<Option<u16>> {
    let mut peers = JoinSet::new();
    for _ in 0..count {
        let client = Arc::clone(client);
        peers.spawn(async move {
            let mut connection = Connection::open(address, &client).await.ok()?;
            connection.send(head(announced).as_bytes()).await.ok()?;
            for part in vec![b' '; sent].chunks(MIB) {
                connection.send(part).await.ok()?;
            }
            connection.read().await.ok().map(|(status, _)| status)
        });
    }
    peers
}

/// Sends a review until it is served, as API servers repeat one that was refused for lack of memory. The server refuses
/// slow peers while others still send, and on a busy machine this client may be the slowest. The refusal may also arrive
/// as a closed connection, before the client has sent the whole body.
async fn until_served(stage: &Simple, review: &str) {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        match stage.connect().await.post("/inject", review).await {
            Ok((200, _)) => return,
            Ok((503, _)) | Err(_) => {}
            Ok(other) => panic!("{other:?}"),
        }
        assert!(tokio::time::Instant::now() < deadline, "incomplete bodies hold the memory");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incomplete_bodies_do_not_delay_others() {
    let limits = Limits { memory: 16 * MIB, ..patient() };
    let stage = Simple::limited(limits).await;
    let mut peers = slow_peers(20, limits.body, 2 * MIB, stage.server.address, &stage.client);
    // When the last peers need memory, the server refuses the first ones.
    stage.server.until("/metrics", REFUSED).await;
    for _ in 0..3 {
        until_served(&stage, &large(5 * MIB)).await;
        assert_serves(&stage).await;
    }
    let mut refused = Vec::new();
    while let Some(status) = peers.try_join_next() {
        refused.push(status.unwrap());
    }
    // A peer that is still sending may fail to receive the refusal.
    assert!(refused.iter().all(|status| matches!(status, Some(503) | None)), "{refused:?}");
    assert!(!peers.is_empty(), "all peers were refused, although the memory suffices for two: {refused:?}");
}

#[tokio::test]
async fn a_body_as_large_as_the_memory_passes() {
    let limits = Limits { memory: 0, ..patient() };
    let stage = Simple::limited(limits).await;
    for _ in 0..2 {
        let (status, said) = stage.connect().await.post("/inject", &large(limits.body)).await.unwrap();
        assert_eq!(status, 200, "{said}");
    }
}

#[tokio::test]
async fn a_request_beyond_the_memory_gets_retry_after() {
    let held = Held::new();
    let limits = Limits { memory: 6 * MIB, ..patient() };
    let stage = Simple::planned(|plan| Plan { routes: vec![held.route()], limits, ..plan }).await;
    let mut at_work = stage.connect().await;
    at_work.send_review("/held", &large(4 * MIB)).await.unwrap();
    held.until("have started", &held.started, 1).await;
    let mut refused = stage.connect().await;
    refused.send_review("/inject", &large(4 * MIB)).await.unwrap();
    let (status, head, said) = refused.read_with_head().await.unwrap();
    assert_eq!((status, said.as_str()), (503, "the memory for requests is exhausted: send the request again\n"));
    assert!(head.contains("retry-after: 1\r\n") && head.contains("connection: close\r\n"), "{head}");
    // Smaller bodies are still accepted.
    assert_serves(&stage).await;
    stage.server.until("/metrics", &format!("{REFUSED} 1")).await;
    held.release.store(true, Ordering::SeqCst);
    at_work.read().await.unwrap();
    assert_eq!(stage.connect().await.post("/inject", &large(4 * MIB)).await.unwrap().0, 200);
}

/// Starts the program, lets each of `peers` send a part of a body, and returns the program with the growth of its peak resident
/// memory in MiB.
async fn growth(api: &Api, peers: usize, announced: usize, sent: usize) -> (Program, usize) {
    let mut program = Program::start(api, &[]);
    program.until_ready().await;
    let before = program.peak();
    let mut peers = slow_peers(peers, announced, sent, program.webhook, &trusting(&bundles(api)[0]));
    while let Some(status) = peers.join_next().await {
        let status = status.unwrap();
        assert!(matches!(status, Some(408 | 503) | None), "{status:?}");
    }
    let growth = program.peak() - before;
    (program, growth)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_bodies_stay_within_the_memory_limit() {
    const PEERS: usize = 50;
    let api = Api::start().await;
    api.put(webhook_configuration(""));
    let (program, growth) = growth(&api, PEERS, ServerSettings::limits().body, 5 * MIB).await;
    // The limit is three times the memory for bodies. This includes the buffers of connections and TLS, and the
    // allocator's overhead.
    let limit = (ServerSettings::limits().memory / MIB) * 3;
    assert!(PEERS * 5 > 2 * limit);
    assert!(growth < limit, "{growth} MiB");
    let metrics = get(program.monitoring, "/metrics").await.unwrap();
    assert!(metrics.contains(REFUSED), "{metrics}");
    assert!(program.log().contains("the memory for requests is exhausted"), "{}", program.log());
    let mut connection = Connection::open(program.webhook, &trusting(&bundles(&api)[0])).await.unwrap();
    let response: Value = connection.review("/inject", &review("v1", "after", "")).await.unwrap();
    assert_eq!(response["response"]["uid"], "after");
}

/// Bodies that together need less than the memory for bodies are all stored, in little more than their size.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_small_bodies_take_little_more_than_their_size() {
    let api = Api::start().await;
    api.put(webhook_configuration(""));
    let (program, growth) = growth(&api, 200, 128 << 10, 127 << 10).await;
    // The bodies have 25 MiB in all, and each connection with TLS takes some 30 KiB.
    assert!(growth < 48, "{growth} MiB");
    let metrics = get(program.monitoring, "/metrics").await.unwrap();
    assert!(!metrics.contains(REFUSED), "{metrics}");
}
