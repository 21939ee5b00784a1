//! The server's side of TLS: one identity, which can be another one from the next handshake on.
//!
//! `webhook` presents what it has loaded; `http::serve_over` opens connections with it. No file is read here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A peer that has not shaken hands by then never will.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// TLS 1.2 and 1.3 without client certificates; clones present the same identity.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    current: Arc<Current>,
}

/// What is presented; nothing at first, and then handshakes fail.
#[derive(Debug, Default)]
struct Current(ArcSwapOption<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}

impl Tls {
    /// Without an identity as yet.
    ///
    /// # Errors
    /// The cryptography that is compiled in has no common protocol version.
    pub fn new() -> Result<Self, rustls::Error> {
        let current = Arc::new(Current::default());
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let mut config = builder
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), current })
    }

    /// Handshakes from now on show this; connections that are open go on.
    pub fn present(&self, identity: Arc<CertifiedKey>) {
        self.current.0.store(Some(identity));
    }

    /// What is presented.
    pub fn presented(&self) -> Option<Arc<CertifiedKey>> {
        self.current.0.load_full()
    }

    /// Shakes hands, within a time limit.
    pub fn open(&self, stream: TcpStream) -> impl Future<Output = io::Result<TlsStream<TcpStream>>> + Send + use<> {
        let acceptor = self.acceptor.clone();
        async move {
            // Answers are small and are waited for.
            stream.set_nodelay(true)?;
            timeout(HANDSHAKE, acceptor.accept(stream)).await.map_err(io::Error::from)?
        }
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("presents", &self.current.0.load().is_some()).finish()
    }
}
