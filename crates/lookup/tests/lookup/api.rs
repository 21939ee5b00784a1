//! Tests of the client of the API server, with doubles of the server that follow scripts.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use lookup::api::{Error, LIMITS, Refusal, get};
use lookup::http::Error as Http;
use lookup::kubeconfig;
use podfacts::{ExtractError, PodFacts, PodName};
use serde_json::json;

use test_servers::{Api, Authority, DEADLINE, Script, pod, port, run_dir, run_dir_named, status, web};

/// A time limit that a test lets expire.
const LIMIT: Duration = Duration::from_millis(800);

fn get_within(limit: Duration, script: Script) -> Result<PodFacts, Error> {
    let authority = Authority::new();
    let api = Api::start(&authority, vec![script]);
    let dir = run_dir(api.address, Some(&authority.pem));
    get(&dir.path().join("istio-cni-kubeconfig"), &web(), limit)
}

fn get_once(script: Script) -> Result<PodFacts, Error> {
    get_within(DEADLINE, script)
}

fn response() -> Script {
    Script::respond(200, pod("u1").to_string())
}

#[test]
fn a_pod_is_read_with_the_kubeconfigs_token() {
    let authority = Authority::new();
    let api = Api::start(&authority, vec![response()]);
    let dir = run_dir(api.address, Some(&authority.pem));
    let pod = PodName { namespace: "a/b".into(), name: "web 0".into() };
    let facts = get(&dir.path().join("istio-cni-kubeconfig"), &pod, DEADLINE).unwrap();
    assert_eq!((facts.uid.as_str(), facts.proxy.is_some()), ("u1", true));
    let request = &api.requests()[0];
    assert!(request.starts_with("GET /api/v1/namespaces/a%2Fb/pods/web%200 HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("\r\nAuthorization: Bearer t0ken\r\n"), "{request}");
    assert!(request.contains(&format!("\r\nHost: {}\r\n", api.address)), "{request}");
}

#[test]
fn both_tls_versions_are_supported() {
    for version in rustls::ALL_VERSIONS {
        let authority = Authority::new();
        let api = Api::start_as(&authority, "127.0.0.1", &[version], vec![response()]);
        for ca in [Some(authority.pem.as_str()), None] {
            let dir = run_dir(api.address, ca);
            get(&dir.path().join("istio-cni-kubeconfig"), &web(), DEADLINE).unwrap();
        }
    }
}

#[test]
fn a_large_chunked_pod_is_read() {
    let mut large = pod("u1");
    large["metadata"]["managedFields"] = "x".repeat(1 << 20).into();
    let text = large.to_string();
    let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in text.as_bytes().chunks(4096) {
        bytes.extend(format!("{:x}\r\n", chunk.len()).bytes().chain(chunk.iter().copied()).chain(*b"\r\n"));
    }
    bytes.extend(b"0\r\n\r\n");
    assert_eq!(get_once(Script::Hold(bytes)).unwrap().uid, "u1");
}

#[test]
fn another_authority_is_rejected() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let api = Api::start(&theirs, vec![response()]);
    let dir = run_dir(api.address, Some(&ours.pem));
    let error = get(&dir.path().join("istio-cni-kubeconfig"), &web(), DEADLINE).unwrap_err();
    assert!(matches!(error, Error::Tls { .. }), "{error:?}");
    // Both CAs have the same subject name, as the CAs of two clusters do, so only the signature differs.
    assert!(error.to_string().contains("BadSignature"), "{error}");
    assert_eq!(api.requests(), [""; 0], "no token was sent");
}

#[test]
fn a_certificate_for_another_address_is_rejected() {
    let authority = Authority::new();
    let api = Api::start_as(&authority, "127.0.0.2", rustls::ALL_VERSIONS, vec![response()]);
    let dir = run_dir(api.address, Some(&authority.pem));
    let error = get(&dir.path().join("istio-cni-kubeconfig"), &web(), DEADLINE).unwrap_err();
    assert!(matches!(error, Error::Tls { .. }) && error.to_string().contains("not valid for name"), "{error}");
    assert_eq!(api.requests(), [""; 0], "no token was sent");
}

#[test]
fn a_certificate_for_tls_server_name_is_accepted() {
    let authority = Authority::new();
    let get = |name: &str| {
        let api = Api::start_as(&authority, "api.example.com", rustls::ALL_VERSIONS, vec![response()]);
        let dir = run_dir_named(api.address, Some(&authority.pem), Some(name));
        let got = get(&dir.path().join("istio-cni-kubeconfig"), &web(), DEADLINE);
        got.map(|facts| (facts.uid, api.requests().len())).map_err(|error| (error.to_string(), api.requests().len()))
    };
    assert_eq!(get("api.example.com"), Ok(("u1".to_owned(), 1)));
    let (error, requests) = get("other.example.com").unwrap_err();
    assert!(error.contains("not valid for name \"other.example.com\""), "{error}");
    assert_eq!(requests, 0, "no token was sent");
}

#[test]
fn an_authority_bundle_without_certificates_is_reported() {
    let dir = run_dir("127.0.0.1:1".parse().unwrap(), Some("no pem"));
    let error = get(&dir.path().join("istio-cni-kubeconfig"), &web(), DEADLINE).unwrap_err();
    assert!(matches!(error, Error::Authorities(_)), "{error:?}");
    assert!(error.to_string().contains("certificate-authority-data contains no usable certificate"), "{error}");
}

#[test]
fn each_refusal_is_reported_with_the_servers_message() {
    for (code, expected) in [
        (401, Refusal::Unauthorized),
        (403, Refusal::Forbidden),
        (404, Refusal::NotFound),
        (409, Refusal::Conflict),
        (429, Refusal::Throttled),
        (500, Refusal::Server),
        (503, Refusal::Server),
        (302, Refusal::Other),
    ] {
        match get_once(status(code, "because of reasons")).unwrap_err() {
            Error::Refused { refusal, status, message, .. } => {
                assert_eq!((refusal, status, message.as_str()), (expected, code, "because of reasons"));
            }
            other => panic!("{code}: {other:?}"),
        }
    }
    let forbidden = get_once(Script::respond(403, "plain text")).unwrap_err().to_string();
    assert!(
        forbidden.contains("responds with 403: plain text; the kubeconfig's service account must be allowed"),
        "{forbidden}"
    );
    assert!(!forbidden.contains("t0ken"));
}

#[test]
fn without_a_listener_the_connection_is_refused() {
    let address: SocketAddr = (Ipv4Addr::LOCALHOST, port::free()).into();
    let dir = run_dir(address, None);
    let error = get(&dir.path().join("istio-cni-kubeconfig"), &web(), DEADLINE).unwrap_err();
    assert!(matches!(&error, Error::Connect { error, .. } if error.kind() == std::io::ErrorKind::ConnectionRefused));
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn the_limit_ends_the_wait_for_a_silent_server() {
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = run_dir(mute.local_addr().unwrap(), None);
    let start = Instant::now();
    let handshake = get(&dir.path().join("istio-cni-kubeconfig"), &web(), LIMIT).unwrap_err();
    assert!(matches!(handshake, Error::Exchange { error: Http::TimedOut, .. }), "{handshake:?}");
    assert!(start.elapsed() >= LIMIT, "{:?}", start.elapsed());

    let drip = [&b"HTTP/1.1 200 OK\r\nX: "[..], &[b'x'; 1000]].concat();
    let dripping = get_within(LIMIT, Script::Drip(drip, LIMIT / 8)).unwrap_err();
    assert!(matches!(dripping, Error::Exchange { error: Http::TimedOut, .. }), "{dripping:?}");
}

#[test]
fn broken_and_oversized_responses_are_reported() {
    let closed = get_once(Script::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{".to_vec())).unwrap_err();
    assert!(matches!(closed, Error::Exchange { error: Http::Closed { received: 39 }, .. }), "{closed:?}");
    let large = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", LIMITS.body + 1);
    let large = get_once(Script::Hold(large.into())).unwrap_err();
    assert!(matches!(large, Error::Exchange { error: Http::TooLarge { part: "body", .. }, .. }), "{large:?}");
}

#[test]
fn an_unframed_response_without_close_notify_is_truncated() {
    let error = get_once(Script::Send(format!("HTTP/1.1 200 OK\r\n\r\n{}", pod("u1")).into())).unwrap_err();
    assert!(matches!(error, Error::Exchange { error: Http::Closed { .. }, .. }), "{error:?}");
}

#[test]
fn anything_but_a_pod_is_reported() {
    let error = get_once(Script::respond(200, "{}")).unwrap_err();
    assert!(matches!(error, Error::Facts { error: ExtractError::Json(_), .. }), "{error:?}");
    let mut bad = pod("u1");
    bad["spec"]["containers"][1]["securityContext"] = json!({"runAsUser": -2});
    let error = get_once(Script::respond(200, bad.to_string())).unwrap_err();
    assert!(error.to_string().contains("runAsUser=-2"), "{error}");
}

#[test]
fn a_missing_kubeconfig_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("istio-cni-kubeconfig");
    let error = get(&path, &web(), DEADLINE).unwrap_err();
    assert!(matches!(error, Error::Kubeconfig(kubeconfig::Error::Read { .. })), "{error:?}");
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
}
