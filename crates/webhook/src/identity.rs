//! The server's identity: its certificate chain, the key, and the authorities that verify it.
//!
//! Verification uses the same code as a TLS client.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, RootCertStore};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// A server's certificate with its key and authorities.
#[derive(Debug, Clone)]
pub struct Identity {
    certified: Arc<CertifiedKey>,
    /// The authorities in PEM, which become the caBundle.
    authorities: String,
}

/// PEM input that is not an identity, or an identity that a client would not trust.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A text contains no certificate.
    #[error("{what} contains no PEM certificate: {reason}")]
    Certificate {
        /// The name of the input, such as `the caBundle`.
        what: &'static str,
        reason: String,
    },
    /// The key is invalid.
    #[error("the key is not a PEM private key: {0}")]
    Key(String),
    /// The key is not the certificate's.
    #[error("the private key does not belong to the certificate: {0}")]
    Pair(rustls::Error),
    /// The caBundle does not verify the certificate.
    #[error("the certificate is not trusted for {name}: {reason}")]
    Untrusted {
        /// The name that the API server connects to.
        name: String,
        reason: String,
    },
}

impl Identity {
    /// Parses a certificate chain, its key and its authorities, all in PEM.
    ///
    /// # Errors
    /// An argument contains no certificate or key, or the key is not the certificate's.
    pub fn parse(chain: &[u8], key: &[u8], authorities: &[u8]) -> Result<Self, Error> {
        let chain = certificates("the certificate", chain)?;
        certificates("the certificate of the authority", authorities)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| Error::Key(error.to_string()))?;
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(Error::Pair)?;
        let authorities = String::from_utf8_lossy(authorities).into_owned();
        Ok(Self { certified: Arc::new(certified), authorities })
    }

    /// Returns the chain and key for TLS.
    pub fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }

    /// Returns the authorities, in PEM.
    pub fn authorities(&self) -> &str {
        &self.authorities
    }

    /// Returns the certificate's `notAfter` in seconds since 1970; `None` if it cannot be read.
    pub fn not_after(&self) -> Option<i64> {
        let (_, leaf) = X509Certificate::from_der(self.certified.cert.first()?).ok()?;
        Some(leaf.validity().not_after.timestamp())
    }

    /// Whether `self` and `other` have the same chain and authorities.
    pub fn is_same(&self, other: &Self) -> bool {
        self.certified.cert == other.certified.cert && self.authorities == other.authorities
    }

    /// Verifies the certificate for the server name `name` at `now`, as a client that trusts `bundle` (PEM) does.
    ///
    /// # Errors
    /// The client would refuse the certificate.
    pub fn trusted(&self, bundle: &[u8], name: &str, now: UnixTime) -> Result<(), Error> {
        let untrusted = |reason: String| Error::Untrusted { name: name.to_owned(), reason };
        let roots = certificates("the caBundle", bundle)?;
        let (leaf, intermediates) = self.certified.cert.split_first().ok_or_else(|| untrusted("it is empty".into()))?;
        let itself = roots.contains(leaf);
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots);
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider)
            .build()
            .map_err(|error| untrusted(error.to_string()))?;
        let server = ServerName::try_from(name).map_err(|error| untrusted(error.to_string()))?;
        match verifier.verify_server_cert(leaf, intermediates, &server, &[], now) {
            Ok(_) => Ok(()),
            // Unlike rustls, the API server accepts an authority's certificate as a server certificate if the bundle
            // contains this certificate itself.
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(_))) if itself => Ok(()),
            Err(error) => Err(untrusted(error.to_string())),
        }
    }
}

/// Returns the `notAfter` of each certificate in a caBundle (PEM), in seconds since 1970.
///
/// # Errors
/// `bundle` contains no certificate, or one that cannot be parsed.
pub fn bundle_ends(bundle: &[u8]) -> Result<Vec<i64>, Error> {
    let wrong = |reason: String| Error::Certificate { what: "the caBundle", reason };
    let end = |certificate: CertificateDer<'_>| match X509Certificate::from_der(&certificate) {
        Ok((_, parsed)) => Ok(parsed.validity().not_after.timestamp()),
        Err(error) => Err(wrong(error.to_string())),
    };
    certificates("the caBundle", bundle)?.into_iter().map(end).collect()
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let wrong = |reason: String| Error::Certificate { what, reason };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() { Err(wrong("there is none".to_owned())) } else { Ok(found) }
}
