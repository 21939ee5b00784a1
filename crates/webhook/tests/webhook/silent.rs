//! Tests of peers that do not read or do not send: the server closes their connections, and other peers can connect.

use std::sync::Arc;

use serve::http::Limits;
use webhook::{AdmissionOutcome, Review, Route, Verdict};

use crate::hostile::{SHORT, assert_serves};
use crate::stage::{Plan, Simple, patient, review};

/// A route with responses larger than the buffers of a connection.
fn large_answers() -> Route {
    let patch = |_: &Review| AdmissionOutcome {
        verdict: Verdict::Patch(vec![b' '; 16 << 20]),
        rule: "policy",
        reason: String::new(),
        warnings: Vec::new(),
    };
    Route { path: "/large", below: false, profile: Arc::new(patch) }
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_disconnected() {
    let limits = Limits { connections: 1, read: SHORT, ..patient() };
    let stage = Simple::planned(|plan| Plan { routes: vec![large_answers()], limits, ..plan }).await;
    let mut unread = stage.connect().await;
    unread.send_review("/large", &review("v1", "u", "").to_string()).await.unwrap();
    // The server accepts only one connection at a time. It disconnects this peer, although the peer keeps its end open,
    // and accepts another connection.
    assert_serves(&stage).await;
    assert!(unread.read().await.is_err(), "the response is cut off");
}

#[tokio::test]
async fn a_reading_peer_gets_the_whole_response() {
    let limits = Limits { read: SHORT, ..patient() };
    let stage = Simple::planned(|plan| Plan { routes: vec![large_answers()], limits, ..plan }).await;
    let mut peer = stage.connect().await;
    peer.send_review("/large", &review("v1", "u", "").to_string()).await.unwrap();
    let (status, response) = peer.read().await.unwrap();
    assert!(status == 200 && response.len() > 20 << 20, "{status}, {} bytes", response.len());
}

#[tokio::test]
async fn connections_that_send_nothing_do_not_stay_as_long_as_idle_ones() {
    const CONNECTIONS: usize = 8;
    let limits = Limits { connections: CONNECTIONS, first: SHORT, ..patient() };
    let stage = Simple::limited(limits).await;
    let mut used = stage.connect().await;
    used.review("/inject", &review("v1", "u", "")).await.unwrap();
    let mut connections = Vec::new();
    for number in 1..CONNECTIONS {
        let mut connection = stage.connect().await;
        if number % 2 == 0 {
            connection.send(b"POST /inject HT").await.unwrap();
        }
        connections.push(connection);
    }
    assert_serves(&stage).await;
    for connection in &mut connections {
        assert!(connection.is_closed().await);
    }
    used.review("/inject", &review("v1", "u", "")).await.expect("a connection that was used stays");
}

#[tokio::test]
async fn a_head_begun_after_a_response_has_the_time_limit_of_heads() {
    let limits = Limits { first: SHORT, ..patient() };
    let stage = Simple::limited(limits).await;
    let [mut idle, mut begun, mut whole] = [stage.connect().await, stage.connect().await, stage.connect().await];
    for connection in [&mut idle, &mut begun, &mut whole] {
        connection.review("/inject", &review("v1", "u", "")).await.unwrap();
    }
    begun.send(b"POST /inject HT").await.unwrap();
    for number in 0..4 {
        whole.review("/inject", &review("v1", &number.to_string(), "")).await.expect("complete heads get a response");
    }
    assert!(begun.is_closed().await);
    idle.review("/inject", &review("v1", "u", "")).await.expect("a connection without a head stays");
}
