//! Bodies that fill the memory for them: of peers that do not send the rest, of reviews that are at work, and of honest ones.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use istio_cni::serve::http::Limits;
use istio_cni::webhook::Settings;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::hostile::{Held, head, still_answers};
use crate::program::Program;
use crate::stage::{Plan, Simple, bundles, get, review, webhook_configuration};
use test_support::api::Api;
use test_support::client::{Connection, trusting};

const MIB: usize = 1 << 20;
const REFUSED: &str = r#"sidecar_injection_decisions_total{decision="refuse",reason="memory"}"#;

/// A review whose body has so many bytes.
fn large(bytes: usize) -> String {
    let sized = |annotation: usize| {
        let mut review = review("v1", "large", "");
        review["request"]["object"]["metadata"]["annotations"]["x"] = "x".repeat(annotation).into();
        review.to_string()
    };
    sized(bytes - sized(0).len())
}

/// Peers that each announce the largest body, send so many bytes of it, and wait for the answer. They end with the value.
fn crowd(count: usize, sent: usize, address: SocketAddr, client: &Arc<rustls::ClientConfig>) -> JoinSet<Option<u16>> {
    let mut crowd = JoinSet::new();
    for _ in 0..count {
        let client = Arc::clone(client);
        crowd.spawn(async move {
            let mut connection = Connection::open(address, &client).await.ok()?;
            connection.send(head(Settings::limits().body).as_bytes()).await.ok()?;
            for _ in 0..sent / MIB {
                connection.send(&vec![b' '; MIB]).await.ok()?;
            }
            connection.read().await.ok().map(|(status, _)| status)
        });
    }
    crowd
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_sent_bodies_hold_up_nobody() {
    // Nobody is refused because of time.
    let (read, request) = (Duration::from_secs(60), Duration::from_secs(120));
    let limits = Limits { memory: 16 * MIB, read, request, ..Settings::limits() };
    let stage = Simple::limited(limits).await;
    let mut crowd = crowd(20, 2 * MIB, stage.server.address, &stage.client);
    // The first of the crowd are given up for the last.
    stage.server.until("/metrics", REFUSED).await;
    for _ in 0..3 {
        let (status, said) = stage.connect().await.post("/inject", &large(5 * MIB)).await.unwrap();
        assert_eq!(status, 200, "{said}");
        still_answers(&stage).await;
    }
    // Who still sends when it is refused may not see the answer.
    while let Some(status) = crowd.try_join_next() {
        assert!(matches!(status.unwrap(), Some(503) | None), "a peer that was given up is told otherwise");
    }
    assert!(!crowd.is_empty(), "as many as there is memory for are left alone");
}

#[tokio::test]
async fn a_body_as_large_as_the_memory_passes() {
    let limits = Limits { memory: 0, ..Settings::limits() };
    let stage = Simple::limited(limits).await;
    for _ in 0..2 {
        let (status, said) = stage.connect().await.post("/inject", &large(limits.body)).await.unwrap();
        assert_eq!(status, 200, "{said}");
    }
}

#[tokio::test]
async fn what_finds_no_memory_is_told_to_ask_again() {
    let held = Held::new();
    let limits = Limits { memory: 6 * MIB, ..Settings::limits() };
    let stage = Simple::planned(|plan| Plan { routes: vec![held.route()], limits, ..plan }).await;
    let mut at_work = stage.connect().await;
    at_work.send_review("/held", &large(4 * MIB)).await.unwrap();
    held.until("have started", &held.started, 1).await;
    let mut refused = stage.connect().await;
    refused.send_review("/inject", &large(4 * MIB)).await.unwrap();
    let (status, head, said) = refused.read_with_head().await.unwrap();
    assert_eq!((status, said.as_str()), (503, "the memory for requests is exhausted; ask again\n"));
    assert!(head.contains("retry-after: 1\r\n") && head.contains("connection: close\r\n"), "{head}");
    // Smaller ones still fit.
    still_answers(&stage).await;
    stage.server.until("/metrics", &format!("{REFUSED} 1")).await;
    held.release.store(true, Ordering::SeqCst);
    at_work.read().await.unwrap();
    assert_eq!(stage.connect().await.post("/inject", &large(4 * MIB)).await.unwrap().0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_with_large_bodies_costs_the_program_no_more_than_its_limit() {
    const CROWD: usize = 50;
    let api = Api::start().await;
    api.put(webhook_configuration(""));
    let mut program = Program::start(&api, &[]);
    program.until_ready().await;
    let client = trusting(&bundles(&api)[0]);
    let before = program.peak();
    let mut crowd = crowd(CROWD, 5 * MIB, program.webhook, &client);
    while let Some(status) = crowd.join_next().await {
        let status = status.unwrap();
        assert!(matches!(status, Some(408 | 503) | None), "{status:?}");
    }
    // Beside the bodies: what connections and TLS buffer, bodies that move as they grow, and what the allocator keeps.
    let limit = (Settings::limits().memory / MIB) * 3;
    assert!(CROWD * 5 > 2 * limit);
    assert!(program.peak() - before < limit, "{before} MiB before, {} MiB after", program.peak());
    let metrics = get(program.monitoring, "/metrics").await.unwrap();
    assert!(metrics.contains(REFUSED), "{metrics}");
    assert!(program.log().contains("the memory for requests is exhausted"), "{}", program.log());
    let mut connection = Connection::open(program.webhook, &client).await.unwrap();
    let answer: Value = connection.review("/inject", &review("v1", "after", "")).await.unwrap();
    assert_eq!(answer["response"]["uid"], "after");
}
