//! The directories in which an installer keeps its files, in a form that two agents of one node can compare.
//!
//! The agents may mount one directory of the node under different paths, and links may lead from one path to another,
//! so directories are compared by device and inode. `agent` sends [`Directories`] to other agents, and `daemon`
//! compares them. Reads only.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::scope::Scope;
use super::settings::InstallSettings;

/// The directories of one installer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directories {
    conf: Id,
    bin: Id,
    place: Place,
}

/// The directories as paths under which their agent mounts them, or as the node's paths if the agent located them itself, and the
/// network in them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Place {
    /// The CNI configuration directory.
    pub conf: PathBuf,
    /// The plugin directory.
    pub bin: PathBuf,
    /// The name of the network whose chain names the plugin.
    pub network: Option<String>,
}

/// The change from the directories of one agent to those of its successor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Relocation {
    /// The directories that the successor does not use.
    pub former: Scope,
    /// The former agent's directories.
    pub from: Place,
    /// The successor's directories.
    pub to: Place,
}

/// Device and inode of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Id {
    device: u64,
    inode: u64,
}

impl Directories {
    /// Returns the directories in `settings`, with the name of the network in them; fails if a directory is missing.
    pub(super) fn of(settings: &InstallSettings, network: Option<String>) -> io::Result<Self> {
        let InstallSettings { net_dir, bin_dir, given, .. } = settings;
        let place = Place { conf: given.path_on_node(net_dir), bin: given.path_on_node(bin_dir), network };
        Ok(Self { conf: Id::of(net_dir)?, bin: Id::of(bin_dir)?, place })
    }

    /// Returns the directories as paths, and the network in them.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Whether both have the same configuration directory.
    pub(super) fn has_conf_of(&self, other: &Self) -> bool {
        self.conf == other.conf
    }

    /// Whether both have the same plugin directory.
    pub(super) fn has_bin_of(&self, other: &Self) -> bool {
        self.bin == other.bin
    }

    /// Returns directories with these inodes.
    #[cfg(test)]
    pub(crate) fn numbered(conf: u64, bin: u64, place: Place) -> Self {
        let id = |inode| Id { device: 1, inode };
        Self { conf: id(conf), bin: id(bin), place }
    }

    /// Returns the change from these directories to the successor's.
    pub fn relocation_to(self, successor: Self) -> Relocation {
        let former = Scope { conf: self.conf != successor.conf, bin: self.bin != successor.bin, run: false };
        Relocation { former, from: self.place, to: successor.place }
    }
}

impl Relocation {
    /// Whether both configuration directories contain the same network. Another network in the successor's directory, such as a
    /// leftover of another program, does not prove that the runtime reads that directory.
    pub fn is_same_network(&self) -> bool {
        self.from.network.is_some() && self.from.network == self.to.network
    }
}

impl Id {
    fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        if !found.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self { device: found.dev(), inode: found.ino() })
    }
}
