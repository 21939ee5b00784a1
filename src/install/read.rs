//! Reads files of limited size from the node's directories.
#![expect(clippy::disallowed_methods, reason = "reads the node's files")]

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The maximum size of a configuration, a token or a CA, in bytes.
const MAX_SIZE: u64 = 1 << 20;

/// A file or directory could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {}: {reason}", path.display())]
pub struct Unread {
    pub path: PathBuf,
    pub reason: String,
    /// Whether the cause is that this process lacks a permission.
    pub is_denied: bool,
}

/// Adds the path to an error.
pub(super) fn unread(path: &Path) -> impl FnOnce(io::Error) -> Unread {
    move |error| {
        let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
        Unread { path: path.to_owned(), reason: error.to_string(), is_denied }
    }
}

/// Reads a file that other programs may replace. Only a regular file is opened, because opening a pipe waits for its writer.
pub(super) fn regular(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no regular file"));
    }
    limited(path)
}

/// Reads a file of at most [`MAX_SIZE`].
pub(super) fn limited(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(MAX_SIZE + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_SIZE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than 1 MiB"));
    }
    Ok(content)
}

/// The permission bits of a file.
pub(super) fn access_mode(path: &Path) -> io::Result<u32> {
    Ok(fs::metadata(path)?.permissions().mode() & 0o7777)
}
