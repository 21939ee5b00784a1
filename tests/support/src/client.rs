//! A webhook client like the API server: it trusts a caBundle and verifies the Service's name.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::DEADLINE;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The DNS name that clients verify in the server's certificate and send as `Host`.
pub const NAME: &str = "istio-sidecar-injector.istio-system.svc";

/// Status and body of a response.
pub type Response = (u16, String);

/// A persistent connection.
pub struct Connection(pub TlsStream<TcpStream>);

/// Returns a configuration that trusts the CAs in `bundle` (PEM).
pub fn trusting(bundle: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    // A resumed session would not verify the certificate again.
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

/// Returns a configuration that trusts the CAs in `bundle` and presents a client certificate (PEM).
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
        let handshake = TlsConnector::from(Arc::clone(config)).connect(name, stream);
        tokio::time::timeout(DEADLINE, handshake).await.expect("a handshake within the deadline").map(Self)
    }

    /// Sends raw bytes.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await?;
        self.0.flush().await
    }

    /// Sends a JSON request without reading the response.
    pub async fn send_review(&mut self, path: &str, body: &str) -> io::Result<()> {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {NAME}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        self.send(format!("{head}{body}").as_bytes()).await
    }

    /// Posts JSON and reads the response.
    pub async fn post(&mut self, path: &str, body: &str) -> io::Result<Response> {
        self.send_review(path, body).await?;
        self.read().await
    }

    /// Posts a review, which must have status 200, and returns the response's JSON.
    pub async fn review(&mut self, path: &str, review: &Value) -> io::Result<Value> {
        let (status, body) = self.post(path, &review.to_string()).await?;
        assert_eq!(status, 200, "{body}");
        Ok(serde_json::from_str(&body).unwrap())
    }

    /// Reads one response.
    pub async fn read(&mut self) -> io::Result<Response> {
        self.read_with_head().await.map(|(status, _, body)| (status, body))
    }

    /// Reads one response. Returns its status, its header lines in lower case, and its body.
    pub async fn read_with_head(&mut self) -> io::Result<(u16, String, String)> {
        tokio::time::timeout(DEADLINE, self.read_response()).await.expect("a response within the deadline")
    }

    async fn read_response(&mut self) -> io::Result<(u16, String, String)> {
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

    /// Whether the peer closes the connection within the deadline.
    pub async fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        tokio::time::timeout(DEADLINE, self.0.read_to_end(&mut rest)).await.is_ok()
    }
}
