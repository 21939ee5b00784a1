//! TLS for servers: the identity and the verification of clients, both replaceable for later handshakes.
//!
//! `webhook` sets the loaded identity; `http::serve_over` accepts connections with it. Reads no files.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use rustls::crypto::ring;
use rustls::pki_types::TrustAnchor;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::http::Opened;
use super::shutdown::{Shutdown, Trigger};

/// The time limit of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// A TLS 1.2 and 1.3 acceptor; clones share the identity and the client verification.
#[derive(Clone)]
pub struct Tls {
    handshakes: Arc<ArcSwap<Handshakes>>,
    current: Arc<Current>,
}

/// The settings of handshakes for one set of client CAs, and the means to end the connections that were opened with
/// them.
struct Handshakes {
    config: Arc<ServerConfig>,
    /// The CAs of clients; `None`: clients need no certificate.
    authorities: Option<Vec<TrustAnchor<'static>>>,
    /// Ends the connections of these handshakes; dropping it does, too.
    end: Arc<Trigger>,
    ended: Shutdown,
}

impl Handshakes {
    fn new(config: ServerConfig, authorities: Option<Vec<TrustAnchor<'static>>>) -> Self {
        let (end, ended) = Shutdown::new();
        Self { config: Arc::new(config), authorities, end: Arc::new(end), ended }
    }

    /// Whether these handshakes require client certificates and accept them only from CAs in `authorities`.
    fn are_within(&self, authorities: &[TrustAnchor<'static>]) -> bool {
        self.authorities.as_ref().is_some_and(|former| former.iter().all(|former| authorities.contains(former)))
    }
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
        let config = configured(&current, WebPkiClientVerifier::no_client_auth())?;
        Ok(Self { handshakes: Arc::new(ArcSwap::from_pointee(Handshakes::new(config, None))), current })
    }

    /// Requires client certificates from these CAs in later handshakes. If a former CA is not among them, or no client
    /// certificate was required before, open connections end after the request in progress.
    ///
    /// # Errors
    /// `authorities` is empty.
    pub fn demand(&self, authorities: RootCertStore) -> Result<(), DemandError> {
        let roots = authorities.roots.clone();
        let former = self.handshakes.load_full();
        if former.authorities.as_ref() == Some(&roots) {
            return Ok(());
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider).build()?;
        let stay = former.are_within(&roots);
        let mut next = Handshakes::new(configured(&self.current, verifier)?, Some(roots));
        if stay {
            (next.end, next.ended) = (Arc::clone(&former.end), former.ended.clone());
        }
        self.handshakes.store(Arc::new(next));
        if !stay {
            former.end.trigger();
        }
        Ok(())
    }

    /// Presents this identity in later handshakes; open connections continue.
    pub fn present(&self, identity: Arc<CertifiedKey>) {
        self.current.0.store(Some(identity));
    }

    /// Returns the current identity.
    pub fn presented(&self) -> Option<Arc<CertifiedKey>> {
        self.current.0.load_full()
    }

    /// Performs the handshake within a time limit.
    pub fn open(
        &self,
        stream: TcpStream,
    ) -> impl Future<Output = io::Result<Opened<TlsStream<TcpStream>>>> + Send + use<> {
        let handshakes = self.handshakes.load_full();
        async move {
            // Responses are small and clients wait for them.
            stream.set_nodelay(true)?;
            let acceptor = TlsAcceptor::from(Arc::clone(&handshakes.config));
            let stream = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await.map_err(io::Error::from)??;
            Ok(Opened { stream, ended: Some(handshakes.ended.clone()) })
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
