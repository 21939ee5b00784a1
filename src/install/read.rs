//! Reads files of limited size from the node's directories.
#![expect(clippy::disallowed_methods, reason = "reads the node's files")]

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The maximum size of a token, a CA or a record, in bytes.
const MAX_SIZE: u64 = 1 << 20;
/// The maximum size of a network configuration, and of all drop-in plugins of a list, in bytes: the plugin reads as much from stdin.
pub(super) const MAX_CONFIGURATION: u64 = 8 << 20;

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
    check_regular(path)?;
    limited(path)
}

/// Reads the record of a configuration directory, which holds originals of configurations in base64.
pub(super) fn record_file(path: &Path) -> io::Result<Vec<u8>> {
    check_regular(path)?;
    at_most(path, 2 * MAX_CONFIGURATION)
}

/// Reads a network configuration of at most [`MAX_CONFIGURATION`].
pub(super) fn network_file(path: &Path) -> io::Result<Vec<u8>> {
    check_regular(path)?;
    at_most(path, MAX_CONFIGURATION)
}

fn check_regular(path: &Path) -> io::Result<()> {
    match fs::metadata(path)?.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "no regular file")),
    }
}

/// Reads a file of at most [`MAX_SIZE`].
pub(super) fn limited(path: &Path) -> io::Result<Vec<u8>> {
    at_most(path, MAX_SIZE)
}

fn at_most(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut content)?;
    if content.len() as u64 > max {
        return Err(too_large(max));
    }
    Ok(content)
}

/// Returns the error of a file that is larger than `max` bytes.
pub(super) fn too_large(max: u64) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {} MiB", max >> 20))
}

/// Returns the permission bits of a file.
pub(super) fn access_mode(path: &Path) -> io::Result<u32> {
    Ok(fs::metadata(path)?.permissions().mode() & 0o7777)
}
