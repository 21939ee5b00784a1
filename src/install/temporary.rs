//! Temporary files in the node's directories: their names, their locks, and whether one is stale.
//!
//! A temporary file is in the same directory as the file that it becomes, because containerd 1.6 ignores a rename from another
//! directory, and it has a name that no runtime reads. Its writer holds a lock (`flock`), which the kernel releases when the
//! process ends: a temporary file that can be locked is stale. `files` creates temporary files; `snapshot` lists the stale ones.
#![expect(clippy::disallowed_methods, reason = "creates, locks and reads temporaries")]

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use contract::diagnostics::without_path;
use tempfile::NamedTempFile;

const PREFIX: &str = ".istio-cni-";
const SUFFIX: &str = ".tmp";
/// The name prefix of the temporary files of Istio's installer, which does not lock them, and exits with a failure if one is
/// removed while it runs.
const UPSTREAM_PREFIX: &str = "istio-cni.tmp.";
/// The age from which a temporary file of Istio's installer is stale.
const UPSTREAM_STALE: Duration = Duration::from_secs(60);

/// Whether a name is that of a temporary file of this program.
pub(super) fn is_temporary(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(PREFIX.as_bytes()) && name.ends_with(SUFFIX.as_bytes())
}

/// Whether a file is a temporary file, of this program or of Istio's installer, whose writer has ended.
pub(super) fn is_stale(path: &Path) -> bool {
    let Some(name) = path.file_name() else { return false };
    if name.as_encoded_bytes().starts_with(UPSTREAM_PREFIX.as_bytes()) {
        let modified = fs::symlink_metadata(path).and_then(|file| file.modified());
        return modified.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > UPSTREAM_STALE));
    }
    is_temporary(name) && path.is_file() && File::open(path).is_ok_and(|file| !is_in_use(&file))
}

/// Whether a running process holds the lock of a temporary file. If none does, the caller then holds the lock until it closes the file.
pub(super) fn is_in_use(file: &File) -> bool {
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

/// Creates a locked temporary file. A process that removes stale temporary files may lock it first and remove it, so the link count
/// is checked under the lock.
pub(super) fn create(dir: &Path) -> io::Result<NamedTempFile> {
    loop {
        let temporary = names().tempfile_in(dir).map_err(without_path)?;
        temporary.as_file().lock()?;
        if temporary.as_file().metadata()?.nlink() > 0 {
            return Ok(temporary);
        }
    }
}

/// Returns a builder of the names of temporary files.
pub(super) fn names() -> tempfile::Builder<'static, 'static> {
    let mut names = tempfile::Builder::new();
    names.prefix(PREFIX).suffix(SUFFIX);
    names
}
