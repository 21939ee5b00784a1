//! Carries out the operations of a plan: the only place of this room that changes the node.
//!
//! A file is replaced by a temporary beside it, synced, renamed over it, and the directory synced: at each instant
//! there is the old file or the new one, whole. The temporary is in the same directory, for containerd 1.6 overlooks a
//! rename from another one, and its name is one that no runtime reads.
#![expect(clippy::disallowed_methods, reason = "owns every change of the node's files")]

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::plan::Operation;

const PREFIX: &str = ".istio-cni-";
const SUFFIX: &str = ".tmp";
/// What Istio's own installer leaves when it is killed.
const UPSTREAM_PREFIX: &str = "istio-cni.tmp.";

/// A change that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}: {source}{}", path.display(), hint(source))]
pub struct Error {
    /// `write`, `copy` or `remove`.
    pub doing: &'static str,
    /// What.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => "; is this directory the node's? Set global.platform or cniBinDir",
        io::ErrorKind::StorageFull => "; free space on the node",
        io::ErrorKind::PermissionDenied => "; DAC_OVERRIDE, SELinux or AppArmor may be missing",
        _ => "",
    }
}

/// Whether a path is a temporary of this program or of the one that it replaces.
pub(super) fn is_temporary(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    (name.starts_with(PREFIX) && name.ends_with(SUFFIX)) || name.starts_with(UPSTREAM_PREFIX)
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
                self.replace(to, *mode, None, |file| io::copy(&mut File::open(from)?, file).map(drop))
            }
            Operation::Write { path, content, mode, over } => {
                self.replace(path, *mode, over.as_deref(), |file| file.write_all(content))
            }
            Operation::Remove { path } => self.remove(path),
        };
        done.map_err(|source| Error { doing: operation.verb(), path: operation.path().to_owned(), source })
    }

    fn replace(
        &self,
        path: &Path,
        mode: u32,
        over: Option<&[u8]>,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<()> {
        let dir = path.parent().ok_or(io::ErrorKind::InvalidFilename)?;
        if !dir.is_dir() {
            (self.before)("make directory");
            fs::DirBuilder::new().recursive(true).mode(0o750).create(dir)?;
        }
        (self.before)("create");
        let mut temporary = tempfile::Builder::new().prefix(PREFIX).suffix(SUFFIX).tempfile_in(dir)?;
        (self.before)("write");
        fill(temporary.as_file_mut())?;
        (self.before)("set mode");
        temporary.as_file().set_permissions(Permissions::from_mode(mode))?;
        (self.before)("sync");
        temporary.as_file().sync_all()?;
        (self.before)("rename");
        if over.is_some_and(|over| fs::read(path).is_ok_and(|there| there != over)) {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another program has just changed it"));
        }
        temporary.persist(path).map_err(|error| error.error)?;
        self.sync(dir)
    }

    /// What is not there need not be removed.
    fn remove(&self, path: &Path) -> io::Result<()> {
        (self.before)("remove");
        match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            done => done?,
        }
        self.sync(path.parent().ok_or(io::ErrorKind::InvalidFilename)?)
    }

    fn sync(&self, dir: &Path) -> io::Result<()> {
        (self.before)("sync directory");
        File::open(dir)?.sync_all()
    }
}
