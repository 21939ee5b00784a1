//! The TLS client configuration for one [`Trust`].

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::Error;
use crate::kubeconfig::Trust;

/// Builds a configuration for TLS 1.2 and 1.3 without client certificate. The machine's trust store is not read.
pub(super) fn client_config(trust: &Trust) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Authorities(error.to_string()))?;
    let config = match trust {
        Trust::Authorities(pem) => builder.with_root_certificates(roots(pem)?).with_no_client_auth(),
        Trust::SkipVerify => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(SkipVerify(provider))).with_no_client_auth()
        }
    };
    Ok(Arc::new(config))
}

/// Collects the usable authorities of a bundle; unusable ones are skipped.
fn roots(pem: &[u8]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let mut reason = "no PEM certificate in it".to_owned();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        match certificate {
            Ok(certificate) => {
                if let Err(error) = roots.add(certificate) {
                    reason = error.to_string();
                }
            }
            Err(error) => reason = error.to_string(),
        }
    }
    if roots.is_empty() { Err(Error::Authorities(reason)) } else { Ok(roots) }
}

/// `insecure-skip-tls-verify`: accepts any certificate whose key the server proves to have.
#[derive(Debug)]
struct SkipVerify(Arc<CryptoProvider>);

impl ServerCertVerifier for SkipVerify {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
