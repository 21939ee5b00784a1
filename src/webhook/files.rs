//! The files of a certificate, as somebody else keeps them.
//!
//! `keep` calls it whenever they may have changed.
#![expect(clippy::disallowed_methods, reason = "owns the reading of certificate files")]

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::identity::{self, Identity};

/// More than this is no certificate.
const MAX_SIZE: u64 = 1 << 20;

/// Where certificate, key and authority are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain, the server's own certificate first; PEM.
    pub certificate: PathBuf,
    /// Its key; PEM.
    pub key: PathBuf,
    /// Who vouches for it; PEM.
    pub authorities: PathBuf,
}

/// Why files give no identity.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("{} cannot be read: {cause}; is the secret mounted?", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// They are no identity: half of them may be new and half old for a moment.
    #[error("{}, its key and its authority are of no use: {cause}", path.display())]
    Identity {
        /// The certificate's file.
        path: PathBuf,
        /// Why not.
        cause: identity::Error,
    },
}

impl CertificateFiles {
    /// Reads all three.
    ///
    /// # Errors
    /// One is missing, or they do not go together.
    pub fn load(&self) -> Result<Identity, Error> {
        let (certificate, key) = (read(&self.certificate)?, read(&self.key)?);
        let identity = Identity::parse(&certificate, &key, &read(&self.authorities)?);
        identity.map_err(|cause| Error::Identity { path: self.certificate.clone(), cause })
    }

    /// The directories whose changes matter.
    pub fn directories(&self) -> Vec<PathBuf> {
        [&self.certificate, &self.key, &self.authorities].into_iter().map(|path| parent(path)).collect()
    }
}

/// The directory of a file.
pub(super) fn parent(path: &Path) -> PathBuf {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    read_at_most(path, MAX_SIZE).map_err(|cause| Error::Read { path: path.to_owned(), cause })
}

/// A file's bytes; one that is larger is an error.
pub(super) fn read_at_most(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(largest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > largest {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {largest} bytes")));
    }
    Ok(bytes)
}
