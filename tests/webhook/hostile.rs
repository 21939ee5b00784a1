//! Peers that are slow, send too much, too little or nonsense, or come in crowds: each is got rid of, and nobody else waits.

use std::time::Duration;

use istio_cni::serve::http::Limits;
use istio_cni::webhook::Settings;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::NAME;
use crate::stage::{Simple, review};

fn head(length: usize) -> String {
    format!(
        "POST /inject HTTP/1.1\r\nhost: {NAME}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

fn impatient() -> Limits {
    Limits { idle: Duration::from_millis(300), request: Duration::from_millis(300), ..Settings::limits() }
}

async fn still_answers(stage: &Simple) {
    let answer = stage.connect().await.review("/inject", &review("v1", "after", "")).await.unwrap();
    assert_eq!(answer["response"]["uid"], "after");
}

#[tokio::test]
async fn what_is_too_large_is_refused() {
    let stage = Simple::start().await;
    let mut connection = stage.connect().await;
    let too_much = 3 * 1024 * 1024 + 1;
    connection.send(head(too_much).as_bytes()).await.unwrap();
    // The server may hang up before it has seen everything.
    let _ = connection.send(&vec![b' '; too_much]).await;
    assert_eq!(connection.read().await.unwrap().0, 413);

    let mut connection = stage.connect().await;
    let long = "x".repeat(70 << 10);
    let _ = connection.send(format!("POST /inject HTTP/1.1\r\nhost: {NAME}\r\nx: {long}\r\n\r\n").as_bytes()).await;
    assert_eq!(connection.read().await.unwrap().0, 431);
    still_answers(&stage).await;
}

#[tokio::test]
async fn as_much_as_an_api_server_sends_is_taken() {
    let stage = Simple::start().await;
    let mut large = review("v1", "large", "");
    large["request"]["object"]["metadata"]["annotations"]["x"] = "x".repeat(2 << 20).into();
    let answer = stage.connect().await.review("/inject", &large).await.unwrap();
    assert_eq!(answer["response"]["uid"], "large");
}

#[tokio::test]
async fn who_is_slow_is_not_waited_for() {
    let stage = Simple::limited(impatient()).await;
    let mut silent = stage.connect().await;
    assert!(silent.is_ended().await, "a connection without a request ends");
    let mut half_head = stage.connect().await;
    half_head.send(b"POST /inject HTTP/1.1\r\nhost:").await.unwrap();
    assert!(half_head.is_ended().await, "a head that never ends is given up");
    let mut half_body = stage.connect().await;
    half_body.send(head(100).as_bytes()).await.unwrap();
    assert_eq!(half_body.read().await.unwrap().0, 408);
    still_answers(&stage).await;
}

#[tokio::test]
async fn nonsense_ends_its_own_connection_and_no_other() {
    let stage = Simple::limited(impatient()).await;
    // No TLS at all.
    let mut plain = TcpStream::connect(stage.server.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    let _ = plain.read_to_end(&mut rest).await;
    assert!(!rest.starts_with(b"HTTP"), "{rest:?}");
    // TLS, but no HTTP.
    for bytes in [&b"\0\x01\x02\x03\r\n\r\n"[..], b"POST /inject HTTP/9.9\r\n\r\n", b"\r\n\r\n\r\n"] {
        let mut connection = stage.connect().await;
        connection.send(bytes).await.unwrap();
        assert!(connection.is_ended().await, "{bytes:?}");
    }
    // Lengths that contradict each other, and a body that is cut.
    let mut smuggler = stage.connect().await;
    let both = "POST /inject HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n";
    smuggler.send(both.as_bytes()).await.unwrap();
    assert_eq!(smuggler.read().await.unwrap().0, 400);
    let mut cut = stage.connect().await;
    cut.send(head(100).as_bytes()).await.unwrap();
    cut.send(b"{\"kind\":").await.unwrap();
    cut.0.shutdown().await.unwrap();
    drop(cut);
    still_answers(&stage).await;
}

#[tokio::test]
async fn json_that_would_hurt_a_reader_is_refused_as_json() {
    let stage = Simple::start().await;
    let mut connection = stage.connect().await;
    let deep = "[".repeat(1 << 20);
    for body in [deep.as_str(), r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":7}"#, "\u{0}"]
    {
        let (status, text) = connection.post("/inject", body).await.unwrap();
        assert_eq!(status, 200);
        assert!(text.contains(r#""allowed":false"#), "{text}");
    }
    still_answers(&stage).await;
}

#[tokio::test]
async fn two_hundred_connections_that_never_finish_hold_up_nobody() {
    const CROWD: usize = 200;
    let stage = Simple::start().await;
    let mut crowd = Vec::new();
    for n in 0..CROWD {
        match n % 3 {
            0 => {
                // A handshake that never goes on.
                let mut plain = TcpStream::connect(stage.server.address).await.unwrap();
                plain.write_all(&[0x16, 0x03, 0x01]).await.unwrap();
                crowd.push((Some(plain), None));
            }
            1 => {
                let mut connection = stage.connect().await;
                connection.send(b"POST /inject HT").await.unwrap();
                crowd.push((None, Some(connection)));
            }
            _ => {
                let mut connection = stage.connect().await;
                connection.send(head(100).as_bytes()).await.unwrap();
                crowd.push((None, Some(connection)));
            }
        }
    }
    let mut connection = stage.connect().await;
    for _ in 0..50 {
        connection.review("/inject", &review("v1", "u", "")).await.unwrap();
    }
    assert_eq!(crowd.len(), CROWD);
}

#[tokio::test]
async fn no_more_connections_are_taken_than_allowed_and_the_next_has_its_turn() {
    let stage = Simple::limited(Limits { connections: 4, ..impatient() }).await;
    let mut crowd = Vec::new();
    for _ in 0..4 {
        crowd.push(stage.connect().await);
    }
    // It waits until those that say nothing are given up, and is answered then.
    still_answers(&stage).await;
    for connection in &mut crowd {
        assert!(connection.is_ended().await);
    }
}
