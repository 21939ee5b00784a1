//! Tests of the client of the agent's socket, with doubles of the agent that follow scripts.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use lookup::agent::{self, Error, LIMITS, Response};
use lookup::http::Error as Http;
use podfacts::PodName;

use test_servers::{Agent, DEADLINE, Script, facts, web};

/// A time limit that a test lets expire.
const LIMIT: Duration = Duration::from_millis(300);

fn request(path: &Path, pod: &PodName, uid: Option<&str>, limit: Duration) -> Result<Response, Error> {
    agent::request(path, pod, uid, limit)?.response()
}

fn ask_within(limit: Duration, script: Script) -> Result<Response, Error> {
    let dir = tempfile::tempdir().unwrap();
    let _agent = Agent::start(dir.path(), vec![script]);
    request(&dir.path().join("agent.sock"), &web(), Some("u1"), limit)
}

fn ask_once(script: Script) -> Result<Response, Error> {
    ask_within(DEADLINE, script)
}

fn failure(script: Script) -> Http {
    failure_within(DEADLINE, script)
}

fn failure_within(limit: Duration, script: Script) -> Http {
    match ask_within(limit, script) {
        Err(Error::Exchange { error, .. }) => error,
        other => panic!("{other:?}"),
    }
}

fn known(response: &Response) -> bool {
    matches!(response, Response::Known(facts) if facts.uid == "u1" && facts.proxy.is_some())
}

#[test]
fn the_request_names_one_pod_with_all_names_encoded() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), vec![Script::respond(200, facts("u1"))]);
    let pod = PodName { namespace: "a b".into(), name: "x&y".into() };
    assert!(known(&request(&dir.path().join("agent.sock"), &pod, Some("u/1"), DEADLINE).unwrap()));
    assert!(known(&request(&dir.path().join("agent.sock"), &web(), None, DEADLINE).unwrap()));
    let requests = agent.requests();
    assert!(
        requests[0].starts_with("GET /pod?namespace=a%20b&name=x%26y&uid=u%2F1 HTTP/1.1\r\nHost: "),
        "{requests:?}"
    );
    assert!(requests[0].contains("\r\nConnection: close\r\n"));
    assert!(requests[1].starts_with("GET /pod?namespace=shop&name=web-0 HTTP/1.1\r\n"), "{requests:?}");
}

#[test]
fn chunked_dripping_and_unframed_responses_are_read() {
    let body = facts("u1");
    let chunked = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n",
        &body[..5],
        body.len() - 5,
        &body[5..]
    );
    let unframed = format!("HTTP/1.1 200 OK\r\n\r\n{body}");
    let dripping = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    for script in [
        Script::Send(chunked.clone().into()),
        Script::Hold(chunked.into()),
        Script::Send(unframed.into()),
        Script::Drip(dripping.into(), Duration::ZERO),
    ] {
        assert!(known(&ask_once(script).unwrap()));
    }
}

#[test]
fn not_found_means_unknown() {
    assert_eq!(ask_once(Script::respond(404, "no such pod")).unwrap(), Response::Unknown);
}

#[test]
fn the_agents_failure_is_reported_with_its_message() {
    let error = ask_once(Script::respond(503, "cache is not filled\n")).unwrap_err();
    assert!(matches!(error, Error::Status { status: 503, .. }), "{error:?}");
    assert!(error.to_string().ends_with("responds with 503: cache is not filled"), "{error}");
}

#[test]
fn without_a_listener_the_agent_is_absent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let missing = request(&path, &web(), None, DEADLINE).unwrap_err();
    assert!(matches!(missing, Error::Absent { .. }), "{missing:?}");
    assert!(
        missing.to_string().contains(path.to_str().unwrap()) && missing.to_string().contains("ENOENT"),
        "{missing}"
    );
    drop(UnixListener::bind(&path).unwrap());
    let refused = request(&path, &web(), None, DEADLINE).unwrap_err();
    assert!(matches!(refused, Error::Absent { .. }) && refused.to_string().contains("ECONNREFUSED"), "{refused:?}");
}

#[test]
fn an_invalid_socket_path_is_an_error() {
    let long = format!("/{}", "x".repeat(200));
    let error = request(Path::new(&long), &web(), None, DEADLINE).unwrap_err();
    assert!(matches!(error, Error::Connect { .. }) && error.to_string().contains("ENAMETOOLONG"), "{error:?}");
}

#[test]
fn the_limit_ends_the_wait_for_a_silent_agent() {
    for script in [Script::Hold(vec![]), Script::Hold(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{".to_vec())] {
        let start = Instant::now();
        assert!(matches!(failure_within(LIMIT, script), Http::TimedOut));
        assert!(start.elapsed() >= LIMIT, "{:?}", start.elapsed());
    }
}

#[test]
fn a_dripping_agent_cannot_extend_the_limit() {
    let drip = [&b"HTTP/1.1 200 OK\r\nX: "[..], &[b'x'; 1000]].concat();
    assert!(matches!(failure_within(LIMIT, Script::Drip(drip, LIMIT / 6)), Http::TimedOut));
}

#[test]
fn the_limit_ends_the_wait_for_an_agent_that_never_accepts() {
    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
    use std::os::fd::AsRawFd;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let listener = socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None).unwrap();
    bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    let _fills_the_backlog = UnixStream::connect(&path).unwrap();
    let error = request(&path, &web(), None, LIMIT).unwrap_err();
    assert!(matches!(error, Error::Exchange { error: Http::TimedOut, .. }), "{error:?}");
}

#[test]
fn an_interrupted_response_is_not_a_timeout() {
    for partial in ["", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{\"uid\""] {
        match failure(Script::Send(partial.into())) {
            Http::Closed { received } => assert_eq!(received, partial.len()),
            other => panic!("{partial:?}: {other:?}"),
        }
    }
}

#[test]
fn an_oversized_response_is_refused_as_soon_as_it_is_detected() {
    let announced = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", LIMITS.body + 1);
    assert!(matches!(failure(Script::Hold(announced.into())), Http::TooLarge { part: "body", .. }));
    let head = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(LIMITS.head));
    assert!(matches!(failure(Script::Hold(head.into())), Http::TooLarge { part: "head", .. }));
    let unframed = format!("HTTP/1.1 200 OK\r\n\r\n{}", " ".repeat(LIMITS.body + 1));
    assert!(matches!(failure(Script::Hold(unframed.into())), Http::TooLarge { part: "body", .. }));
}

#[test]
fn malformed_responses_are_reported() {
    let text = failure(Script::Send(b"SSH-2.0-x\r\n\r\n".to_vec())).to_string();
    assert_eq!(text, "invalid HTTP/1.1 response: invalid HTTP version");
    for body in ["", "[]", "{}", "{\"uid\":1}", "<html>"] {
        let error = ask_once(Script::respond(200, body)).unwrap_err();
        assert!(matches!(error, Error::Facts { .. }), "{body}: {error:?}");
        assert!(error.to_string().contains("does not describe the pod: "), "{error}");
    }
}
