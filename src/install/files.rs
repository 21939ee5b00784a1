//! Carries out the operations of a plan: the only place of this room that changes the node.
//!
//! A file is replaced by a temporary beside it, synced, renamed over it, and the directory synced: at each instant
//! there is the old file or the new one, whole. The temporary is in the same directory, for containerd 1.6 overlooks a
//! rename from another one, and its name is one that no runtime reads. Its writer holds a lock (`flock`) on it, which the
//! kernel drops with the process: a temporary that can be locked is stale, and only such a one is removed.
#![expect(clippy::disallowed_methods, reason = "owns every change of the node's files")]

use std::ffi::OsStr;
use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::{NamedTempFile, TempPath};

use super::plan::{Operation, Source};

const PREFIX: &str = ".istio-cni-";
const SUFFIX: &str = ".tmp";
/// Of Istio's own installer, which locks nothing, and ends in failure where one of its temporaries is removed under it.
const UPSTREAM_PREFIX: &str = "istio-cni.tmp.";
/// For so long after its last change, a temporary of Istio's installer may still be in use.
const UPSTREAM_USE: Duration = Duration::from_secs(60);

/// A change that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}: {cause}{}", path.display(), hint(cause))]
pub struct Error {
    /// `write`, `copy` or `remove`.
    pub doing: &'static str,
    /// What.
    pub path: PathBuf,
    /// Why.
    pub cause: io::Error,
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => "; is this directory the node's? Set global.platform or cniBinDir",
        io::ErrorKind::StorageFull => "; free space on the node",
        io::ErrorKind::PermissionDenied => "; DAC_OVERRIDE, SELinux or AppArmor may be missing",
        _ => "",
    }
}

/// Whether a file's name is that of a temporary of this program.
pub(super) fn is_temporary(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(PREFIX.as_bytes()) && name.ends_with(SUFFIX.as_bytes())
}

/// Whether a path is a temporary, of this program or of Istio's, whose writer is dead.
pub(super) fn is_stale(path: &Path) -> bool {
    let Some(name) = path.file_name() else { return false };
    if name.as_encoded_bytes().starts_with(UPSTREAM_PREFIX.as_bytes()) {
        let modified = fs::symlink_metadata(path).and_then(|file| file.modified());
        return modified.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > UPSTREAM_USE));
    }
    is_temporary(name) && path.is_file() && File::open(path).is_ok_and(|file| !is_in_use(&file))
}

/// Whether a living process holds the lock on its temporary; if none does, the caller has it as long as the file is open.
fn is_in_use(file: &File) -> bool {
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

/// Changes files, and lets somebody look on before each step.
pub struct Files<'a> {
    before: &'a (dyn Fn(&'static str) + Sync),
}

impl Files<'static> {
    /// Changes files.
    pub fn new() -> Self {
        Self { before: &|_| {} }
    }
}

impl Default for Files<'static> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Files<'a> {
    /// Calls `before` with the name of each step that is about to change a file or sync one.
    pub fn observed(before: &'a (dyn Fn(&'static str) + Sync)) -> Self {
        Self { before }
    }

    /// Carries out one operation.
    pub fn perform(&self, operation: &Operation) -> Result<(), Error> {
        let done = match operation {
            Operation::Copy { from, to, mode } => {
                self.replace(to, *mode, |file| io::copy(&mut File::open(from)?, file).map(drop), || Ok(()))
            }
            Operation::Write { path, content, mode, over, source } => {
                let unchanged = || {
                    over.iter().try_for_each(|over| still_holds(path, over))?;
                    source.iter().try_for_each(|Source { path, content }| still_holds(path, content))
                };
                self.replace(path, *mode, |file| file.write_all(content), unchanged)
            }
            Operation::Remove { path, over: Some(content) } => self.remove_unchanged(path, content),
            Operation::Remove { path, over: None } => self.remove(path),
        };
        done.map_err(|cause| Error { doing: operation.verb(), path: operation.path().to_owned(), cause })
    }

    fn replace(
        &self,
        path: &Path,
        mode: u32,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
        unchanged: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let dir = path.parent().ok_or(io::ErrorKind::InvalidFilename)?;
        if !dir.is_dir() {
            (self.before)("make directory");
            fs::DirBuilder::new().recursive(true).mode(0o750).create(dir)?;
        }
        (self.before)("create");
        let mut temporary = temporary(dir)?;
        (self.before)("write");
        fill(temporary.as_file_mut())?;
        (self.before)("set mode");
        temporary.as_file().set_permissions(Permissions::from_mode(mode))?;
        (self.before)("sync");
        temporary.as_file().sync_all()?;
        (self.before)("rename");
        unchanged()?;
        temporary.persist(path).map_err(|error| error.error)?;
        self.sync(dir)
    }

    /// What is not there need not be removed, and a temporary whose writer lives must not be.
    fn remove(&self, path: &Path) -> io::Result<()> {
        let lock = path.file_name().is_some_and(|name| is_temporary(name) && path.is_file());
        let lock = lock.then(|| File::open(path).ok()).flatten();
        if lock.as_ref().is_some_and(is_in_use) {
            return Ok(());
        }
        (self.before)("remove");
        match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            done => done?,
        }
        self.sync(path.parent().ok_or(io::ErrorKind::InvalidFilename)?)
    }

    /// Removes a file that still is as a plan has read it. The file leaves its name before the comparison that decides, so that
    /// no other program replaces it in between. What another program has written meanwhile goes back to its name, unless the
    /// name holds a still newer version by then.
    fn remove_unchanged(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let dir = path.parent().ok_or(io::ErrorKind::InvalidFilename)?;
        let changed = || busy(format!("another program has just changed {}", path.display()));
        match holds(path, content) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Ok(true) => {}
            _ => return Err(changed()),
        }
        (self.before)("set aside");
        let aside = match names().make_in(dir, |aside| fs::rename(path, aside)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            aside => aside?.into_temp_path(),
        };
        if !holds(&aside, content).unwrap_or(false) {
            (self.before)("put back");
            put_back(aside, path)?;
            self.sync(dir)?;
            return Err(changed());
        }
        (self.before)("remove");
        aside.close()?;
        self.sync(dir)
    }

    fn sync(&self, dir: &Path) -> io::Result<()> {
        (self.before)("sync directory");
        File::open(dir)?.sync_all()
    }
}

/// A locked temporary. Whoever removes a stale one has it locked meanwhile, so one that is still linked once it is locked
/// stays.
fn temporary(dir: &Path) -> io::Result<NamedTempFile> {
    loop {
        let temporary = names().tempfile_in(dir)?;
        temporary.as_file().lock()?;
        if temporary.as_file().metadata()?.nlink() > 0 {
            return Ok(temporary);
        }
    }
}

/// The names of temporaries.
fn names() -> tempfile::Builder<'static, 'static> {
    let mut names = tempfile::Builder::new();
    names.prefix(PREFIX).suffix(SUFFIX);
    names
}

/// Gives a file its name back (`RENAME_NOREPLACE`). A file that has the name by then is newer and stays.
fn put_back(aside: TempPath, path: &Path) -> io::Result<()> {
    match aside.persist_noclobber(path) {
        Err(taken) if taken.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(failed) => {
            let kept = failed.path.keep().map_err(|error| error.error)?;
            Err(io::Error::new(failed.error.kind(), format!("it is now {}: {}", kept.display(), failed.error)))
        }
        Ok(()) => Ok(()),
    }
}

/// Fails where a file has other content than a plan has read there, or is gone: its owner's change is not written over, and
/// what the owner removed or renamed is not made anew.
fn still_holds(path: &Path, content: &[u8]) -> io::Result<()> {
    let change = match holds(path, content) {
        Ok(true) => return Ok(()),
        Ok(_) => format!("another program has just changed {}", path.display()),
        Err(error) => format!("another program has just removed {}: {error}", path.display()),
    };
    Err(busy(change))
}

fn busy(change: String) -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, change)
}

/// Whether a regular file has this content. No more of it is read than that takes, and a pipe is not opened: whoever opens one
/// waits for its writer.
fn holds(path: &Path, content: &[u8]) -> io::Result<bool> {
    let found = fs::metadata(path)?;
    if !found.is_file() || found.len() != content.len() as u64 {
        return Ok(false);
    }
    let mut there = Vec::with_capacity(content.len());
    File::open(path)?.take(found.len() + 1).read_to_end(&mut there)?;
    Ok(there == content)
}
