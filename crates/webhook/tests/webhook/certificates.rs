//! Tests of certificates that change: in files, under load, self-issued, and shared by replicas.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use webhook::{CertificateStore, Certificates, Issued, Lifetime};

use crate::stage::{Plan, Server, Simple, bundles, issue, mount, review, webhook_configuration};
use test_support::DEADLINE;
use test_support::api::{Api, Fault};
use test_support::client::{Connection, NAME, trusting};

fn self_signed(store: CertificateStore, lifetime: Duration) -> Certificates {
    Certificates::SelfSigned { store, names: vec![NAME.to_owned()], lifetime: Lifetime(lifetime) }
}

fn secret(api: &Api) -> CertificateStore {
    CertificateStore::Secret {
        client: api.client(),
        namespace: "istio-system".to_owned(),
        name: "certificate".to_owned(),
    }
}

fn in_secret(api: &Api, key: &str) -> Option<String> {
    let secret = api.get("secrets", "istio-system", "certificate")?;
    let bytes =
        base64::Engine::decode(&base64::engine::general_purpose::STANDARD, secret["data"][key].as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}

/// Returns the certificate that the server presents (DER), or `None` if `bundle` does not trust it.
async fn shown(server: &Server, bundle: &str) -> Option<Vec<u8>> {
    let connection = Connection::open(server.address, &trusting(bundle)).await.ok()?;
    let (_, session) = connection.0.get_ref();
    Some(session.peer_certificates()?.first()?.to_vec())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_rotate_under_load_and_no_request_fails() {
    const ROTATIONS: usize = 8;
    let stage = Simple::start().await;
    let rounds: Vec<Issued> = (0..ROTATIONS)
        .scan(stage.issued.clone(), |former, _| {
            *former = issue(Some(former));
            Some(former.clone())
        })
        .collect();
    // The client trusts all CAs, like an API server with a current caBundle.
    let all = rounds.iter().fold(stage.issued.authorities.clone(), |all, issued| all + &issued.authorities);
    let (client, done, responses) = (trusting(&all), Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load: Vec<_> = (0..6)
        .map(|n| {
            let (client, done, responses, address) =
                (Arc::clone(&client), Arc::clone(&done), Arc::clone(&responses), stage.server.address);
            tokio::spawn(async move {
                // Half of the clients keep their connection, the others perform a handshake for every request.
                let mut kept = Connection::open(address, &client).await.unwrap();
                while !done.load(Ordering::Relaxed) {
                    if n % 2 == 0 {
                        kept = Connection::open(address, &client).await.unwrap();
                    }
                    let uid = format!("u-{n}");
                    let response = kept.review("/inject", &review("v1", &uid, "")).await.unwrap();
                    assert_eq!(response["response"]["uid"], uid);
                    responses.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for (round, issued) in rounds.iter().enumerate() {
        mount(stage.dir.path(), issued);
        let wanted =
            format!("sidecar_injection_reloads_total{{what=\"certificate\",result=\"success\"}} {}", round + 2);
        stage.server.until("/metrics", &wanted).await;
    }
    done.store(true, Ordering::Relaxed);
    for task in load {
        task.await.expect("no request fails");
    }
    assert!(responses.load(Ordering::Relaxed) > ROTATIONS, "there was load");
    let newest = rounds.last().unwrap().identity().unwrap().certified();
    assert_eq!(shown(&stage.server, &all).await.unwrap(), newest.cert[0].to_vec());
}

#[tokio::test]
async fn invalid_files_do_not_change_the_certificate() {
    let stage = Simple::start().await;
    let before = shown(&stage.server, &stage.issued.authorities).await.unwrap();
    let other = issue(None);
    let mixed = Issued { key: other.key.clone(), ..stage.issued.clone() };
    let empty = Issued { certificate: String::new(), ..stage.issued.clone() };
    for (failures, broken) in [mixed, empty].iter().enumerate() {
        mount(stage.dir.path(), broken);
        let wanted = format!("{{what=\"certificate\",result=\"failure\"}} {}", failures + 1);
        stage.server.until("/metrics", &wanted).await;
        assert_eq!(shown(&stage.server, &stage.issued.authorities).await.as_ref(), Some(&before));
    }
    // The former certificate is still in use: the server stays ready.
    stage.server.until("/readyz", "200 OK").await;
    mount(stage.dir.path(), &other);
    stage.server.until("/metrics", "{what=\"certificate\",result=\"success\"} 2").await;
    assert!(shown(&stage.server, &other.authorities).await.is_some());
}

#[tokio::test]
async fn without_a_certificate_it_is_not_ready_and_reports_the_missing_file() {
    let dir = tempfile::tempdir().unwrap();
    let missing = |name: &str| dir.path().join(name);
    let files = webhook::CertificateFiles {
        certificate: missing("cert.pem"),
        key: missing("key.pem"),
        authorities: missing("root.pem"),
    };
    let server = Server::start(Plan::new(Certificates::Files(files))).await;
    let said = server.until("/readyz", "cert.pem cannot be read").await;
    assert!(said.contains("503"), "{said}");
    let issued = issue(None);
    assert!(shown(&server, &issued.authorities).await.is_none());
    mount(dir.path(), &issued);
    server.until_ready().await;
}

#[tokio::test]
async fn replicas_agree_on_one_certificate_in_a_secret() {
    let api = Api::start().await;
    api.put(webhook_configuration(""));
    // Both replicas find no Secret and create one. One request is held until the other replica's Secret exists.
    api.fault(Fault::on("POST", "/secrets").held().times(1));
    let start = || Server::start(Plan::new(self_signed(secret(&api), Duration::from_secs(3600))).with(&api));
    let (one, two) = (start().await, start().await);
    api.until("a Secret", |api| in_secret(api, "ca.crt")).await;
    api.release();
    one.until_ready().await;
    two.until_ready().await;
    let bundle = in_secret(&api, "ca.crt").unwrap();
    assert_eq!(bundles(&api)[..2], [bundle.clone(), bundle.clone()]);
    let (first, second) = (shown(&one, &bundle).await.unwrap(), shown(&two, &bundle).await.unwrap());
    assert_eq!(first, second);
    assert_eq!(api.get("secrets", "istio-system", "certificate").unwrap()["type"], "kubernetes.io/tls");
    assert!(in_secret(&api, "tls.key").unwrap().starts_with("-----BEGIN PRIVATE KEY-----"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_renewed_before_it_expires_and_stays_trusted() {
    let api = Api::start().await;
    api.put(webhook_configuration(""));
    let certificates = self_signed(secret(&api), Duration::from_secs(15));
    let server = Server::start(Plan::new(certificates).with(&api)).await;
    server.until_ready().await;
    let first = in_secret(&api, "tls.crt").unwrap();
    let deadline = tokio::time::Instant::now() + DEADLINE;
    let mut requests = 0;
    // An API server verifies each new connection against the current caBundle.
    while in_secret(&api, "tls.crt").unwrap() == first || requests < 50 {
        let mut connection =
            Connection::open(server.address, &trusting(&bundles(&api)[0])).await.expect("it is believed");
        connection.review("/inject", &review("v1", "u", "")).await.expect("it is answered");
        requests += 1;
        assert!(tokio::time::Instant::now() < deadline, "no renewal after {requests} requests");
    }
    server.until_ready().await;
    let bundle = in_secret(&api, "ca.crt").unwrap();
    assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 2, "the former authority is still known");
}

#[tokio::test]
async fn a_restart_keeps_the_certificate_in_the_directory_readable_by_its_owner_only() {
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let store = CertificateStore::Directory(dir.path().to_owned());
        Server::start(Plan::new(self_signed(store, Duration::from_secs(3600))))
    };
    let file = dir.path().join("sidecar-injector.json");
    let read = |path: &Path| -> Value { serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() };
    let first = start().await;
    first.until_ready().await;
    let kept = read(&file);
    drop(first);
    let second = start().await;
    second.until("/metrics", "webhook_certificate_presented 1").await;
    assert_eq!(read(&file), kept);
    assert!(shown(&second, kept["ca.crt"].as_str().unwrap()).await.is_some());
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_forbidden_secret_is_reported_with_the_missing_rights() {
    let api = Api::start().await;
    api.fault(Fault::on("POST", "/secrets").status(403));
    let server = Server::start(Plan::new(self_signed(secret(&api), Duration::from_secs(3600)))).await;
    let said = server.until("/readyz", "secret istio-system/certificate cannot be written").await;
    assert!(said.contains("the role must allow"), "{said}");
    api.heal();
    server.until_ready().await;
}
