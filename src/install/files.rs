//! Applies the file operations of a plan: the only file of this module that changes the node.
//!
//! A new version is written to a temporary beside the file and synced, renamed over the file, and the directory synced: each
//! name always has either the old or the new content, never a part of it.
#![expect(clippy::disallowed_methods, reason = "owns every change of the node's files")]

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use super::plan::{Operation, Source};
use super::temporary;

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
        let mut temporary = temporary::create(dir)?;
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
        let lock = path.file_name().is_some_and(|name| temporary::is_temporary(name) && path.is_file());
        let lock = lock.then(|| File::open(path).ok()).flatten();
        if lock.as_ref().is_some_and(temporary::is_in_use) {
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
        let aside = match temporary::names().make_in(dir, |aside| fs::rename(path, aside)) {
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
