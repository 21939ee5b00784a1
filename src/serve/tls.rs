//! TLS for servers: the identity and the verification of clients, both replaceable for further handshakes.
//!
//! `webhook` sets the loaded identity; `http::serve_over` accepts connections with it. Reads no files.

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

/// The time limit of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// A TLS 1.2 and 1.3 acceptor; clones share the identity and the client verification.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ArcSwap<ServerConfig>>,
    current: Arc<Current>,
}

/// The current identity; without one, handshakes fail.
#[derive(Debug, Default)]
struct Current(ArcSwapOption<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}

impl Tls {
    /// Creates an acceptor without an identity, for clients without certificates.
    ///
    /// # Errors
    /// The cryptography provider supports neither protocol version.
    pub fn new() -> Result<Self, rustls::Error> {
        let current = Arc::new(Current::default());
        let config = ArcSwap::from_pointee(configured(&current, WebPkiClientVerifier::no_client_auth())?);
        Ok(Self { config: Arc::new(config), current })
    }

    /// Requires client certificates of these CAs in further handshakes; open connections continue.
    ///
    /// # Errors
    /// `authorities` is empty.
    pub fn demand(&self, authorities: RootCertStore) -> Result<(), DemandError> {
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider).build()?;
        self.config.store(Arc::new(configured(&self.current, verifier)?));
        Ok(())
    }

    /// Presents this identity in further handshakes; open connections continue.
    pub fn present(&self, identity: Arc<CertifiedKey>) {
        self.current.0.store(Some(identity));
    }

    /// The current identity.
    pub fn presented(&self) -> Option<Arc<CertifiedKey>> {
        self.current.0.load_full()
    }

    /// Performs the handshake within a time limit.
    pub fn open(&self, stream: TcpStream) -> impl Future<Output = io::Result<TlsStream<TcpStream>>> + Send + use<> {
        let acceptor = TlsAcceptor::from(self.config.load_full());
        async move {
            // Responses are small and clients wait for them.
            stream.set_nodelay(true)?;
            timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await.map_err(io::Error::from)?
        }
    }
}

/// Client certificates cannot be required.
#[derive(Debug, thiserror::Error)]
pub enum DemandError {
    #[error(transparent)]
    Authorities(#[from] VerifierBuilderError),
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
