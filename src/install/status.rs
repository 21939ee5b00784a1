//! The progress of an installer, and its result for other tasks.

use std::sync::Arc;

use tokio::sync::watch;

use super::directories::Directories;
use super::settings::Settings;

/// The progress of the installation on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// The installer has not read the node's directories yet.
    Starting,
    /// The missing parts, each with its remedy.
    NotReady(Vec<String>),
    /// The installation is complete.
    Ready,
}

impl Status {
    /// The status of a node on which nothing has been changed yet, for which a plan has these obstacles.
    pub fn from_obstacles(obstacles: Vec<String>) -> Self {
        if obstacles.is_empty() { Self::Starting } else { Self::NotReady(obstacles) }
    }
}

/// The status of one installer and the directories of its installation, for other tasks.
#[derive(Debug, Clone)]
pub struct Installation {
    settings: Arc<Settings>,
    status: watch::Receiver<Status>,
}

impl Installation {
    pub fn new(settings: Arc<Settings>, status: watch::Receiver<Status>) -> Self {
        Self { settings, status }
    }

    /// The directories; `None` until the installation is complete. Blocks while it reads the configuration.
    pub fn directories(&self) -> Option<Directories> {
        let is_ready = *self.status.borrow() == Status::Ready;
        is_ready.then(|| Directories::of(&self.settings).ok()).flatten()
    }
}
