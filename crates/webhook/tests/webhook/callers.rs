//! Tests of client certificates: callers must present one, and the CA that the webhook trusts may change.

use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

use crate::stage::{Plan, Simple, review};
use test_support::DEADLINE;
use test_support::client::{Connection, presenting, trusting};

/// A CA and a client certificate that it signed.
struct Caller {
    authority: String,
    certificate: String,
    key: String,
}

impl Caller {
    fn new() -> Self {
        let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let mut caller = CertificateParams::new(vec!["kube-apiserver".to_owned()]).unwrap();
        caller.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let root = authority.self_signed(&authority_key).unwrap().pem();
        let certificate = caller.signed_by(&key, &Issuer::from_params(&authority, &authority_key)).unwrap().pem();
        Self { authority: root, certificate, key: key.serialize_pem() }
    }

    /// Opens a connection and completes one review on it.
    async fn connected(&self, stage: &Simple) -> Connection {
        let config = presenting(&stage.issued.authorities, &self.certificate, &self.key);
        let mut connection = Connection::open(stage.server.address, &config).await.unwrap();
        connection.review("/inject", &review("v1", "u", "")).await.unwrap();
        connection
    }

    /// Whether a review by this caller gets a response.
    async fn gets_response(&self, stage: &Simple) -> bool {
        let config = presenting(&stage.issued.authorities, &self.certificate, &self.key);
        is_reviewed(stage, &config).await
    }
}

/// Whether a review gets a response. In TLS 1.3 a client detects that its certificate was refused only when it reads
/// the first response.
async fn is_reviewed(stage: &Simple, config: &std::sync::Arc<rustls::ClientConfig>) -> bool {
    let Ok(mut connection) = Connection::open(stage.server.address, config).await else { return false };
    connection.review("/inject", &review("v1", "u", "")).await.is_ok()
}

#[tokio::test]
async fn callers_have_a_certificate_of_the_authority_in_the_file_and_of_no_other() {
    let (known, other) = (Caller::new(), Caller::new());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("client-ca.pem");
    std::fs::write(&file, &known.authority).unwrap();
    let stage = Simple::planned(|plan| Plan { callers: Some(file.clone()), ..plan }).await;
    assert!(known.gets_response(&stage).await);
    assert!(!other.gets_response(&stage).await, "a certificate of another authority");
    assert!(!is_reviewed(&stage, &trusting(&stage.issued.authorities)).await, "no certificate");
    // Probes need no certificate, because they use the monitoring port.
    stage.server.until("/readyz", "200 OK").await;

    // An invalid file changes nothing.
    std::fs::write(&file, "nothing").unwrap();
    assert!(known.gets_response(&stage).await);
    std::fs::write(dir.path().join("new"), &other.authority).unwrap();
    std::fs::rename(dir.path().join("new"), &file).unwrap();
    until_accepted(&other, &stage).await;
    assert!(!known.gets_response(&stage).await, "the former authority is still believed");
}

#[tokio::test]
async fn connections_end_when_the_authority_of_their_callers_is_removed() {
    let (former, newer) = (Caller::new(), Caller::new());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("client-ca.pem");
    let put = |text: &str| {
        std::fs::write(dir.path().join("new"), text).unwrap();
        std::fs::rename(dir.path().join("new"), &file).unwrap();
    };
    put(&former.authority);
    let stage = Simple::planned(|plan| Plan { callers: Some(file.clone()), ..plan }).await;
    let mut early = former.connected(&stage).await;
    put(&format!("{}{}", former.authority, newer.authority));
    until_accepted(&newer, &stage).await;
    let mut late = former.connected(&stage).await;
    let response = early.review("/inject", &review("v1", "early", "")).await.unwrap();
    assert_eq!(response["response"]["uid"], "early", "a further authority ends no connection");

    put(&newer.authority);
    for connection in [&mut early, &mut late] {
        assert!(connection.is_closed().await, "a caller of the former authority stays connected");
    }
    assert!(newer.gets_response(&stage).await && !former.gets_response(&stage).await);
}

async fn until_accepted(caller: &Caller, stage: &Simple) {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while !caller.gets_response(stage).await {
        assert!(tokio::time::Instant::now() < deadline, "the authorities are not read");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
