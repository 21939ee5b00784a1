//! The directories in which an installer keeps its files, in a form that two agents of one node can compare.
//!
//! The agents may mount one directory of the node under different paths, and links may lead from one path to another; device and
//! inode are the same for both. `agent` serves them, and `daemon` compares them. Reads only.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::scope::Scope;
use super::settings::Settings;
use super::{plan, snapshot};

/// The directories of one installer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directories {
    conf: Id,
    bin: Id,
    place: Place,
}

/// The directories by the paths under which their agent mounts them, and the network in them.
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
    /// The directories that `settings` name; an error if one is missing.
    pub fn of(settings: &Settings) -> io::Result<Self> {
        let (conf, bin) = (settings.net_dir.clone(), settings.bin_dir.clone());
        let network = snapshot::configuration(settings).0.ok().and_then(|files| plan::chained_network(&files));
        Ok(Self { conf: Id::of(&conf)?, bin: Id::of(&bin)?, place: Place { conf, bin, network } })
    }

    /// The change from these directories to those of `successor`.
    pub fn relocation_to(self, successor: Self) -> Relocation {
        let former = Scope { conf: self.conf != successor.conf, bin: self.bin != successor.bin, run: false };
        Relocation { former, from: self.place, to: successor.place }
    }
}

impl Relocation {
    /// Whether both configuration directories contain the same network. Another network in the successor's directory, such as a
    /// leftover of another program, is no evidence that the runtime reads that directory.
    pub fn is_same_network(&self) -> bool {
        self.from.network.is_some() && self.from.network == self.to.network
    }
}

impl Id {
    fn of(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|found| Self { device: found.dev(), inode: found.ino() })
    }
}
