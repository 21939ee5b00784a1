//! Applies the file operations of a plan. No other source file of `install` changes the node.
//!
//! A new version is written to a temporary file in the same directory and synced, renamed over the file, and the directory synced:
//! each name always has either the old or the new content, never a part of it, even after a power cut. A file of another program is
//! exchanged with the temporary file instead, so that a version that its owner wrote meanwhile can be restored.
#![expect(clippy::disallowed_methods, reason = "makes every change of the node's files")]

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use contract::diagnostics::without_path;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::{NamedTempFile, TempPath};

use super::operation::{Operation, Source};
use super::scope::Scope;
use super::settings::InstallSettings;
use super::temporary;

/// A file operation failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {verb} {}: {cause}{}", path.display(), hint(cause))]
pub struct Error {
    /// `write`, `copy` or `remove`.
    pub verb: &'static str,
    pub path: PathBuf,
    pub cause: io::Error,
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => "; is this directory the node's? Set global.platform or cniBinDir",
        io::ErrorKind::StorageFull => "; free space on the node",
        io::ErrorKind::IsADirectory => "; remove this directory",
        io::ErrorKind::PermissionDenied => {
            "; the agent may lack the capability DAC_OVERRIDE, or SELinux or AppArmor denies the access"
        }
        _ => "",
    }
}

/// Applies file operations to the node, and calls a hook before each step of an operation.
pub struct Files<'a> {
    before: &'a (dyn Fn(&'static str) + Sync),
}

impl Files<'static> {
    /// Applies operations without a hook.
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
    /// Calls `before` with the step's name before each step that changes or syncs a file. Tests interrupt operations with it.
    pub fn with_hook(before: &'a (dyn Fn(&'static str) + Sync)) -> Self {
        Self { before }
    }

    /// Applies one operation.
    pub fn apply(&self, operation: &Operation) -> Result<(), Error> {
        let done = match operation {
            Operation::Copy { from, to, mode } => {
                let fill = |file: &mut File| io::copy(&mut File::open(from)?, file).map(drop);
                self.write(to, *mode, fill).and_then(|temporary| self.rename(temporary, to))
            }
            Operation::Write { path, content, mode, expected, source } => {
                self.write(path, *mode, |file| file.write_all(content)).and_then(|temporary| {
                    (self.before)("compare");
                    source.iter().try_for_each(|Source { path, content }| check_unchanged(path, content))?;
                    match expected {
                        Some(expected) => self.exchange(temporary, path, expected),
                        None => self.rename(temporary, path),
                    }
                })
            }
            Operation::Remove { path, expected, replaced_by } => {
                let is_replaced =
                    replaced_by.iter().try_for_each(|Source { path, content }| check_unchanged(path, content));
                is_replaced.and_then(|()| match expected {
                    Some(content) => self.remove_unchanged(path, content),
                    None => self.remove(path),
                })
            }
        };
        done.map_err(|cause| Error { verb: operation.verb(), path: operation.path().to_owned(), cause })
    }

    /// Writes and syncs a temporary file in the directory of `path`.
    fn write(
        &self,
        path: &Path,
        mode: u32,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<NamedTempFile> {
        let dir = directory_of(path)?;
        if !dir.is_dir() {
            (self.before)("make directory");
            self.make_directory(dir)?;
        }
        (self.before)("create");
        let mut temporary = temporary::create(dir)?;
        (self.before)("write");
        fill(temporary.as_file_mut())?;
        (self.before)("set mode");
        temporary.as_file().set_permissions(Permissions::from_mode(mode))?;
        (self.before)("sync");
        temporary.as_file().sync_all()?;
        Ok(temporary)
    }

    fn rename(&self, temporary: NamedTempFile, path: &Path) -> io::Result<()> {
        (self.before)("rename");
        temporary.persist(path).map_err(|error| error.error)?;
        self.sync(directory_of(path)?)
    }

    /// Replaces `path` with a temporary file if `path` still has the content that the plan read. The comparison before the exchange
    /// (`RENAME_EXCHANGE`) keeps runtimes from reading content that would be reverted; the comparison after it misses no change.
    fn exchange(&self, temporary: NamedTempFile, path: &Path, expected: &[u8]) -> io::Result<()> {
        check_unchanged(path, expected)?;
        (self.before)("rename");
        match renameat_with(CWD, temporary.path(), CWD, path, RenameFlags::EXCHANGE) {
            // Network file systems do not support the exchange.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => return self.rename(temporary, path),
            Err(rustix::io::Errno::NOENT) => return Err(removed(path)),
            done => done?,
        }
        if !has_content(temporary.path(), expected).unwrap_or(false) {
            if let Err(error) = self.put_back(&temporary, path) {
                return Err(kept(temporary.into_temp_path(), &error));
            }
            self.sync(directory_of(path)?)?;
            return Err(changed(path));
        }
        (self.before)("remove");
        temporary.close()?;
        self.sync(directory_of(path)?)
    }

    /// Restores the file that was found in the place of the expected one. If an exchange finds a file other than the one that the
    /// previous exchange placed, the owner wrote a newer version in between, and the next exchange restores that version.
    fn put_back(&self, temporary: &NamedTempFile, path: &Path) -> io::Result<()> {
        let mut placed = temporary.as_file().metadata()?.ino();
        loop {
            let found = fs::symlink_metadata(temporary.path())?.ino();
            (self.before)("put back");
            match renameat_with(CWD, temporary.path(), CWD, path, RenameFlags::EXCHANGE) {
                // The owner has removed the file.
                Err(rustix::io::Errno::NOENT) => return Ok(()),
                done => done?,
            }
            if fs::symlink_metadata(temporary.path())?.ino() == placed {
                return Ok(());
            }
            placed = found;
        }
    }

    /// Removes a file, unless it is missing, or is a temporary file whose writer is running.
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
        self.sync(directory_of(path)?)
    }

    /// Removes a file if it still has the content that the plan read. The file is renamed before the final comparison, so that no
    /// other program can replace it in between. If the content differs, the file is renamed back, unless another program has
    /// created a newer one meanwhile.
    fn remove_unchanged(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let dir = directory_of(path)?;
        match has_content(path, content) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Ok(true) => {}
            _ => return Err(changed(path)),
        }
        (self.before)("set aside");
        let aside = match temporary::names().make_in(dir, |aside| fs::rename(path, aside)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            aside => aside.map_err(without_path)?.into_temp_path(),
        };
        if !has_content(&aside, content).unwrap_or(false) {
            (self.before)("put back");
            restore(aside, path)?;
            self.sync(dir)?;
            return Err(changed(path));
        }
        (self.before)("remove");
        aside.close()?;
        self.sync(dir)
    }

    /// Creates a directory and its missing parents, and syncs the directories that contain the new names.
    fn make_directory(&self, dir: &Path) -> io::Result<()> {
        let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !dir.is_dir()).collect();
        fs::DirBuilder::new().recursive(true).mode(0o750).create(dir)?;
        missing.iter().filter_map(|dir| dir.parent()).try_for_each(|parent| self.sync(parent))
    }

    fn sync(&self, dir: &Path) -> io::Result<()> {
        (self.before)("sync directory");
        sync(dir)
    }
}

/// Syncs the existing directories of an installation. An earlier process may have been killed between a rename or
/// removal and the sync of its directory. Without this sync, a power cut could undo that change and still keep later
/// changes that depend on it.
pub(super) fn sync_directories(settings: &InstallSettings) {
    for dir in Scope::ALL.paths(settings) {
        match sync(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %dir.display(), "the directory cannot be synced");
            }
            _ => {}
        }
    }
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Renames a file back (`RENAME_NOREPLACE`). A file that was created under the name meanwhile is newer and stays.
fn restore(aside: TempPath, path: &Path) -> io::Result<()> {
    match aside.persist_noclobber(path) {
        Err(taken) if taken.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(failed) => Err(kept(failed.path, &failed.error)),
        Ok(()) => Ok(()),
    }
}

/// Keeps another program's file under its temporary name, and returns an error with that path.
fn kept(aside: TempPath, error: &io::Error) -> io::Error {
    match aside.keep() {
        Ok(path) => io::Error::new(error.kind(), format!("it is now {}: {error}", path.display())),
        Err(failed) => failed.error,
    }
}

fn directory_of(path: &Path) -> io::Result<&Path> {
    path.parent().ok_or_else(|| io::ErrorKind::InvalidFilename.into())
}

/// Fails if a file is missing or no longer has the content that the plan read: a concurrent change by its owner is not overwritten,
/// and a file that the owner removed or renamed is not created again.
fn check_unchanged(path: &Path, content: &[u8]) -> io::Result<()> {
    match has_content(path, content) {
        Ok(true) => Ok(()),
        Ok(false) => Err(changed(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(removed(path)),
        Err(error) => Err(error),
    }
}

fn changed(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, format!("another program has just changed {}", path.display()))
}

fn removed(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, format!("another program has just removed {}", path.display()))
}

/// Whether a regular file has this content. Reads at most one byte more than its size. Does not open a pipe, because
/// that would wait for the pipe's writer.
fn has_content(path: &Path, content: &[u8]) -> io::Result<bool> {
    let found = fs::metadata(path)?;
    if !found.is_file() || found.len() != content.len() as u64 {
        return Ok(false);
    }
    let mut actual = Vec::with_capacity(content.len());
    File::open(path)?.take(found.len() + 1).read_to_end(&mut actual)?;
    Ok(actual == content)
}
