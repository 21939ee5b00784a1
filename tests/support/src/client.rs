//! A client as an API server is one: it trusts a caBundle, and connects by the service's name.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The service by which the API server connects.
pub const NAME: &str = "istio-sidecar-injector.istio-system.svc";

/// Longer than this no test waits for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Status and body.
pub type Answer = (u16, String);

/// One connection, kept open.
pub struct Connection(pub TlsStream<TcpStream>);

/// Believes those in `bundle` (PEM).
pub fn trusting(bundle: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    // Whoever resumes a session does not look at the certificate again.
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

/// Believes those in `bundle`, and presents a certificate of its own (PEM).
pub fn presenting(bundle: &str, certificate: &str, key: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    Arc::new(builder.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap())
}

impl Connection {
    pub async fn open(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(NAME).unwrap();
        let shake = TlsConnector::from(Arc::clone(config)).connect(name, stream);
        tokio::time::timeout(PATIENCE, shake).await.expect("a handshake ends").map(Self)
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await?;
        self.0.flush().await
    }

    /// Sends a request with JSON, and does not read its answer.
    pub async fn send_review(&mut self, path: &str, body: &str) -> io::Result<()> {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {NAME}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        self.send(format!("{head}{body}").as_bytes()).await
    }

    /// Posts JSON.
    pub async fn post(&mut self, path: &str, body: &str) -> io::Result<Answer> {
        self.send_review(path, body).await?;
        self.read().await
    }

    /// Posts a review and reads it back.
    pub async fn review(&mut self, path: &str, review: &Value) -> io::Result<Value> {
        let (status, body) = self.post(path, &review.to_string()).await?;
        assert_eq!(status, 200, "{body}");
        Ok(serde_json::from_str(&body).unwrap())
    }

    /// One answer.
    pub async fn read(&mut self) -> io::Result<Answer> {
        self.read_with_head().await.map(|(status, _, body)| (status, body))
    }

    /// Status, head in lower case, and body of one answer.
    pub async fn read_with_head(&mut self) -> io::Result<(u16, String, String)> {
        tokio::time::timeout(PATIENCE, self.read_answer()).await.expect("an answer comes")
    }

    async fn read_answer(&mut self) -> io::Result<(u16, String, String)> {
        let mut bytes = Vec::new();
        let head = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            let mut chunk = [0; 16_384];
            match self.0.read(&mut chunk).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => bytes.extend_from_slice(&chunk[..n]),
            }
        };
        let text = String::from_utf8(bytes[..head].to_vec()).unwrap().to_lowercase();
        let length =
            text.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
        while bytes.len() < head + length {
            let mut chunk = [0; 16_384];
            match self.0.read(&mut chunk).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => bytes.extend_from_slice(&chunk[..n]),
            }
        }
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        Ok((status, text, String::from_utf8(bytes[head..].to_vec()).unwrap()))
    }

    /// Whether the peer has ended the connection, within the test's patience.
    pub async fn is_ended(&mut self) -> bool {
        let mut rest = Vec::new();
        tokio::time::timeout(PATIENCE, self.0.read_to_end(&mut rest)).await.is_ok()
    }
}
