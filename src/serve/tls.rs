//! The server's side of TLS: one identity, and what is demanded of clients; both can be others from the next handshake on.
//!
//! `webhook` presents what it has loaded; `http::serve_over` opens connections with it. No file is read here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use rustls::crypto::ring;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A peer that has not shaken hands by then never will.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// TLS 1.2 and 1.3; clones present the same identity and demand the same of clients.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ArcSwap<ServerConfig>>,
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
    /// Without an identity as yet, and for clients without a certificate.
    ///
    /// # Errors
    /// The cryptography that is compiled in has no common protocol version.
    pub fn new() -> Result<Self, rustls::Error> {
        let current = Arc::new(Current::default());
        let config = ArcSwap::from_pointee(configured(&current, WebPkiClientVerifier::no_client_auth())?);
        Ok(Self { config: Arc::new(config), current })
    }

    /// From now on a handshake fails unless the client has a certificate of one of these authorities; connections that are
    /// open go on.
    ///
    /// # Errors
    /// There are no authorities.
    pub fn demand(&self, authorities: RootCertStore) -> Result<(), DemandError> {
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider).build()?;
        self.config.store(Arc::new(configured(&self.current, verifier)?));
        Ok(())
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
        let acceptor = TlsAcceptor::from(self.config.load_full());
        async move {
            // Answers are small and are waited for.
            stream.set_nodelay(true)?;
            timeout(HANDSHAKE, acceptor.accept(stream)).await.map_err(io::Error::from)?
        }
    }
}

/// Why no certificates can be demanded.
#[derive(Debug, thiserror::Error)]
pub enum DemandError {
    /// There are no authorities.
    #[error(transparent)]
    Authorities(#[from] VerifierBuilderError),
    /// The cryptography that is compiled in has no common protocol version.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

fn configured(current: &Arc<Current>, verifier: Arc<dyn ClientCertVerifier>) -> Result<ServerConfig, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let mut config = builder
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::clone(current) as Arc<dyn ResolvesServerCert>);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("presents", &self.current.0.load().is_some()).finish()
    }
}
