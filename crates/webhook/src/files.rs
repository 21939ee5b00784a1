//! Reads the files of a certificate that another program maintains.
//!
//! `certificates` calls [`CertificateFiles::load`] whenever the files may have changed.
#![expect(clippy::disallowed_methods, reason = "owns the reading of certificate files")]

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::identity::{self, Identity};

/// The size limit of a file in bytes.
const MAX_SIZE: u64 = 1 << 20;

/// The paths of certificate, key and authorities, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain, with the server's certificate first.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// The authorities, which become the caBundle.
    pub authorities: PathBuf,
}

/// The files contain no valid certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("{} cannot be read: {cause}; is the secret mounted?", path.display())]
    Read { path: PathBuf, cause: io::Error },
    /// The files do not match: while they change, some may be new and some old.
    #[error("the certificate {}, its key or its CA certificate is invalid: {cause}", path.display())]
    Identity {
        /// The certificate's file.
        path: PathBuf,
        cause: identity::Error,
    },
}

impl CertificateFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// A file is missing or invalid, or the files do not match.
    pub fn load(&self) -> Result<Identity, Error> {
        let (certificate, key) = (read(&self.certificate)?, read(&self.key)?);
        let identity = Identity::parse(&certificate, &key, &read(&self.authorities)?);
        identity.map_err(|cause| Error::Identity { path: self.certificate.clone(), cause })
    }

    /// Returns the directories of the files, which the caller watches for changes.
    pub fn directories(&self) -> Vec<PathBuf> {
        [&self.certificate, &self.key, &self.authorities].into_iter().map(|path| parent(path)).collect()
    }
}

/// Returns the directory of a file.
pub(super) fn parent(path: &Path) -> PathBuf {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    read_at_most(path, MAX_SIZE).map_err(|cause| Error::Read { path: path.to_owned(), cause })
}

/// Reads a file; a file larger than `largest` bytes is an error.
pub(super) fn read_at_most(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(largest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > largest {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {largest} bytes")));
    }
    Ok(bytes)
}
