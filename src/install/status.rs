//! The progress of the installer, as other tasks observe it, and the directories of its installation.

use std::io;
use std::sync::Arc;

use tokio::sync::watch;

use super::directories::Directories;
use super::settings::InstallSettings;
use super::{plan, snapshot};

/// The progress of the installation on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// The installer has not read the node's directories yet.
    Starting,
    /// The installation is not complete, because of these obstacles, planned operations or failed operations.
    NotReady(Vec<String>),
    /// The installation is complete.
    Ready,
}

impl Status {
    /// Returns the status of a node on which the installer has changed nothing yet, from the obstacles of its first
    /// plan.
    pub fn from_obstacles(obstacles: Vec<String>) -> Self {
        if obstacles.is_empty() { Self::Starting } else { Self::NotReady(obstacles) }
    }
}

/// The status of one installer and the directories of its installation, for other tasks.
#[derive(Debug, Clone)]
pub struct Installation {
    settings: Arc<InstallSettings>,
    status: watch::Receiver<Status>,
}

impl Installation {
    pub fn new(settings: Arc<InstallSettings>, status: watch::Receiver<Status>) -> Self {
        Self { settings, status }
    }

    /// Returns the directories; `None` until the installation is complete. Blocks while it reads the configuration.
    pub fn directories(&self) -> Option<Directories> {
        let is_ready = *self.status.borrow() == Status::Ready;
        is_ready.then(|| directories_of(&self.settings).ok()).flatten()
    }
}

/// Reads the directories in `settings`, and the network in them; fails if a directory is missing.
pub fn directories_of(settings: &InstallSettings) -> io::Result<Directories> {
    let network = snapshot::configuration(settings).0.ok().and_then(|files| plan::chained_network(&files));
    Directories::of(settings, network)
}
