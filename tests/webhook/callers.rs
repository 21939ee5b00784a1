//! Callers who must present a certificate, and whose authority changes.

use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

use crate::stage::{Plan, Simple, review};
use test_support::client::{Connection, presenting, trusting};

/// An authority, and a certificate of it for a caller.
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

    /// Whether a review of this caller is answered.
    async fn is_answered(&self, stage: &Simple) -> bool {
        let config = presenting(&stage.issued.authorities, &self.certificate, &self.key);
        answered(stage, &config).await
    }
}

/// In TLS 1.3 a client hears of a refusal with the first answer.
async fn answered(stage: &Simple, config: &std::sync::Arc<rustls::ClientConfig>) -> bool {
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
    assert!(known.is_answered(&stage).await);
    assert!(!other.is_answered(&stage).await, "a certificate of another authority");
    assert!(!answered(&stage, &trusting(&stage.issued.authorities)).await, "no certificate");
    // Probes come in elsewhere.
    stage.server.until("/readyz", "200 OK").await;

    // What is of no use changes nothing.
    std::fs::write(&file, "nothing").unwrap();
    assert!(known.is_answered(&stage).await);
    std::fs::write(dir.path().join("new"), &other.authority).unwrap();
    std::fs::rename(dir.path().join("new"), &file).unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !other.is_answered(&stage).await {
        assert!(tokio::time::Instant::now() < deadline, "the new authority is never read");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!known.is_answered(&stage).await, "the former authority is still believed");
}
