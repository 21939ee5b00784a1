//! Tests of the shutdown: accepted requests get their responses, and peers that send nothing do not delay the exit.

use std::net::SocketAddr;
use std::time::Duration;

use serve::http::Limits;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::stage::{Simple, patient, review};
use test_support::DEADLINE;
use test_support::client::NAME;

/// Waits until connections are refused.
async fn until_refused(address: SocketAddr) {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while TcpStream::connect(address).await.is_ok() {
        assert!(tokio::time::Instant::now() < deadline, "connections are still accepted");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_completes_accepted_requests() {
    let stage = Simple::start().await;
    let body = review("v1", "late", "").to_string();
    let mut in_progress = stage.connect().await;
    let head = format!(
        "POST /inject HTTP/1.1\r\nhost: {NAME}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    in_progress.send(head.as_bytes()).await.unwrap();
    stage.server.trigger.trigger();
    stage.server.until("/readyz", "server: ending").await;
    // The server still accepts new requests, because clients send them until the endpoint is removed from the Service.
    stage.connect().await.review("/inject", &review("v1", "u", "")).await.unwrap();
    until_refused(stage.server.address).await;
    in_progress.send(body.as_bytes()).await.unwrap();
    let (status, response) = in_progress.read().await.unwrap();
    assert_eq!(status, 200, "{response}");
    assert!(response.contains("late"), "{response}");
    assert!(in_progress.is_closed().await);
    tokio::time::timeout(DEADLINE, stage.server.task).await.expect("the server ends").unwrap();
}

#[tokio::test]
async fn shutdown_closes_a_connection_after_its_next_response() {
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
    let mut response = String::new();
    tokio::time::timeout(DEADLINE, kept.0.read_to_string(&mut response)).await.expect("the server ends").unwrap();
    assert!(response.contains("connection: close\r\n") && response.contains("last"), "{response}");
}

#[tokio::test]
async fn shutdown_does_not_wait_for_incomplete_requests() {
    let limits = Limits { drain: Duration::from_millis(300), ..patient() };
    let stage = Simple::limited(limits).await;
    let mut stuck = stage.connect().await;
    stuck.send(b"POST /inject HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n").await.unwrap();
    stage.server.trigger.trigger();
    tokio::time::timeout(DEADLINE, stage.server.task).await.expect("the server ends").unwrap();
}

#[tokio::test]
async fn an_old_connection_is_closed_between_two_requests() {
    let limits = Limits { connection: Duration::from_secs(2), ..patient() };
    let stage = Simple::limited(limits).await;
    let mut connection = stage.connect().await;
    let mut responses = 0;
    // Each accepted request gets a response, until the connection is closed.
    while connection.review("/inject", &review("v1", "u", "")).await.is_ok() {
        responses += 1;
    }
    assert!(responses > 1, "{responses}");
    stage.connect().await.review("/inject", &review("v1", "u", "")).await.unwrap();
}
