//! Peers that do not read, and peers that do not send: each loses its connection, and the next peer gets it.

use std::sync::Arc;
use std::time::Duration;

use istio_cni::serve::http::Limits;
use istio_cni::webhook::{AdmissionOutcome, Review, Route, Settings, Verdict};

use crate::hostile::still_answers;
use crate::stage::{Plan, Simple, review};

const SHORT: Duration = Duration::from_millis(300);

/// A route whose answers are larger than the buffers of a connection.
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
async fn a_peer_that_reads_no_answer_loses_its_connection() {
    let limits = Limits { connections: 1, read: SHORT, ..Settings::limits() };
    let stage = Simple::planned(|plan| Plan { routes: vec![large_answers()], limits, ..plan }).await;
    let mut deaf = stage.connect().await;
    deaf.send_review("/large", &review("v1", "u", "").to_string()).await.unwrap();
    // The only connection is free again, although this peer keeps its end.
    still_answers(&stage).await;
    assert!(deaf.read().await.is_err(), "the answer is cut off");
}

#[tokio::test]
async fn a_peer_that_reads_gets_its_whole_answer() {
    let limits = Limits { read: SHORT, ..Settings::limits() };
    let stage = Simple::planned(|plan| Plan { routes: vec![large_answers()], limits, ..plan }).await;
    let mut peer = stage.connect().await;
    peer.send_review("/large", &review("v1", "u", "").to_string()).await.unwrap();
    let (status, answer) = peer.read().await.unwrap();
    assert!(status == 200 && answer.len() > 20 << 20, "{status}, {} bytes", answer.len());
}

#[tokio::test]
async fn connections_that_send_nothing_do_not_stay_as_long_as_idle_ones() {
    const CROWD: usize = 8;
    let limits = Limits { connections: CROWD, first: SHORT, ..Settings::limits() };
    let stage = Simple::limited(limits).await;
    let mut used = stage.connect().await;
    used.review("/inject", &review("v1", "u", "")).await.unwrap();
    let mut crowd = Vec::new();
    for number in 1..CROWD {
        let mut connection = stage.connect().await;
        if number % 2 == 0 {
            connection.send(b"POST /inject HT").await.unwrap();
        }
        crowd.push(connection);
    }
    still_answers(&stage).await;
    for connection in &mut crowd {
        assert!(connection.is_ended().await);
    }
    used.review("/inject", &review("v1", "u", "")).await.expect("a connection that was used stays");
}

#[tokio::test]
async fn a_head_that_is_begun_after_an_answer_ends_within_the_limit_of_heads() {
    let limits = Limits { first: SHORT, ..Settings::limits() };
    let stage = Simple::limited(limits).await;
    let [mut idle, mut begun, mut whole] = [stage.connect().await, stage.connect().await, stage.connect().await];
    for connection in [&mut idle, &mut begun, &mut whole] {
        connection.review("/inject", &review("v1", "u", "")).await.unwrap();
    }
    begun.send(b"POST /inject HT").await.unwrap();
    for number in 0..4 {
        whole.review("/inject", &review("v1", &number.to_string(), "")).await.expect("whole heads are answered");
    }
    assert!(begun.is_ended().await);
    idle.review("/inject", &review("v1", "u", "")).await.expect("a connection without a head stays");
}
