//! Authenticates the webhook's clients by certificates that the authorities in a file have signed. The file is read
//! again when it changes.
//!
//! `server` starts [`watch`] as a task. Without a file, callers need no certificate.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serve::tls::Tls;
use serve::watch::Watch;
use tokio::time::sleep;

use super::files::{parent, read_at_most};

/// The size limit of the file in bytes.
const MAX_SIZE: u64 = 1 << 20;
/// The interval at which the file is read if no event reports a change.
const RESYNC_INTERVAL: Duration = Duration::from_secs(30);
/// The delay after an event, because a mounted volume changes in several steps.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// The CA certificates for callers cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("the CA certificates for callers (--clientCAFile), {}, cannot be read: {cause}", path.display())]
    Read { path: PathBuf, cause: std::io::Error },
    /// The file contains no certificate, or an invalid one.
    #[error("the CA certificates for callers (--clientCAFile), {}, are invalid: {why}", path.display())]
    Authorities { path: PathBuf, why: String },
}

/// Reads the file and makes TLS require client certificates that are signed by its authorities.
///
/// # Errors
/// The file is unreadable or invalid; the previous authorities stay in effect.
pub(super) fn load(path: &Path, tls: &Tls) -> Result<(), Error> {
    let bytes = read_at_most(path, MAX_SIZE).map_err(|cause| Error::Read { path: path.to_owned(), cause })?;
    let wrong = |why: String| Error::Authorities { path: path.to_owned(), why };
    let mut authorities = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        authorities.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    tls.demand(authorities).map_err(|error| wrong(error.to_string()))
}

/// Loads the file again whenever it changes. Never returns.
pub(super) async fn watch(path: Option<PathBuf>, tls: Tls) {
    let Some(path) = path else { return std::future::pending().await };
    let mut watch = Watch::new([parent(&path)]);
    loop {
        watch.renew();
        if let Err(error) = load(&path, &tls) {
            tracing::warn!("{error}; those that were read before stay in use");
        }
        watch.changed(RESYNC_INTERVAL).await;
        sleep(DEBOUNCE).await;
    }
}
