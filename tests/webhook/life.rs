//! The end: nobody who got through is refused, and nobody is waited for for ever.

use std::net::SocketAddr;
use std::time::Duration;

use istio_cni::serve::http::Limits;
use istio_cni::webhook::Settings;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::stage::{Simple, review};
use test_support::client::NAME;

/// Waits until nobody new is let in.
async fn until_refused(address: SocketAddr) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(address).await.is_ok() {
        assert!(tokio::time::Instant::now() < deadline, "connections are still accepted");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_under_way_are_answered_and_then_it_ends() {
    let stage = Simple::start().await;
    let body = review("v1", "late", "").to_string();
    let mut under_way = stage.connect().await;
    let head = format!(
        "POST /inject HTTP/1.1\r\nhost: {NAME}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    under_way.send(head.as_bytes()).await.unwrap();
    stage.server.trigger.trigger();
    stage.server.until("/readyz", "server: ending").await;
    // Others still come for a while, for they have not heard of it.
    stage.connect().await.review("/inject", &review("v1", "u", "")).await.unwrap();
    until_refused(stage.server.address).await;
    under_way.send(body.as_bytes()).await.unwrap();
    let (status, answer) = under_way.read().await.unwrap();
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains("late"), "{answer}");
    assert!(under_way.is_ended().await);
    tokio::time::timeout(Duration::from_secs(10), stage.server.task).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn on_a_kept_connection_the_first_answer_after_the_wish_to_end_is_the_last() {
    let stage = Simple::start().await;
    let mut kept = stage.connect().await;
    for _ in 0..2 {
        kept.review("/inject", &review("v1", "u", "")).await.unwrap();
    }
    stage.server.trigger.trigger();
    stage.server.until("/readyz", "server: ending").await;
    let body = review("v1", "last", "").to_string();
    let head = format!(
        "POST /inject HTTP/1.1\r\nhost: {NAME}\r\ncontent-type: application/json\r\ncontent-length: {}",
        body.len()
    );
    kept.send(format!("{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(Duration::from_secs(10), kept.0.read_to_string(&mut answer)).await.expect("it ends").unwrap();
    assert!(answer.contains("connection: close\r\n") && answer.contains("last"), "{answer}");
}

#[tokio::test]
async fn whoever_never_finishes_is_not_waited_for_at_the_end() {
    let limits = Limits { drain: Duration::from_millis(300), ..Settings::limits() };
    let stage = Simple::limited(limits).await;
    let mut stuck = stage.connect().await;
    stuck.send(b"POST /inject HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n").await.unwrap();
    stage.server.trigger.trigger();
    tokio::time::timeout(Duration::from_secs(5), stage.server.task).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn an_old_connection_is_closed_between_two_requests() {
    let limits = Limits { connection: Duration::from_millis(300), ..Settings::limits() };
    let stage = Simple::limited(limits).await;
    let mut connection = stage.connect().await;
    let mut answered = 0;
    // Each request that gets through is answered; in the end none does.
    while connection.review("/inject", &review("v1", "u", "")).await.is_ok() {
        answered += 1;
    }
    assert!(answered > 1, "{answered}");
    stage.connect().await.review("/inject", &review("v1", "u", "")).await.unwrap();
}
