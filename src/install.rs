//! Puts plugin, kubeconfig and chain entry on a node, keeps them there, and takes them away again.
//!
//! `daemon` calls it. A snapshot of the node gives a plan of file operations; an empty plan is what ready means. It
//! never asks the API server, and never touches a network configuration beyond its own entry.

pub mod conflist;
mod directories;
pub mod files;
pub mod flags;
mod identity;
mod keep;
mod kubeconfig;
mod metrics;
pub mod plan;
pub mod record;
mod remove;
pub mod server;
pub mod settings;
pub mod snapshot;
mod throttle;

pub use directories::{Directories, Installation, Move, Place, Scope};
pub use flags::Flags;
pub use identity::{Identity, Issued, NoAccount, Token};
pub use keep::{Sources, keep, obstacles};
pub use metrics::Metrics;
pub use remove::remove;
pub use server::Resolver;
pub use settings::Settings;

/// How far the node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// Nobody has looked yet.
    Starting,
    /// What is missing, each with the way to it.
    NotReady(Vec<String>),
    /// Nothing is.
    Ready,
}

impl Status {
    /// What is known of a node that nobody has changed yet.
    pub fn of_obstacles(obstacles: Vec<String>) -> Self {
        if obstacles.is_empty() { Self::Starting } else { Self::NotReady(obstacles) }
    }
}

/// Why the node is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A change that the node refused.
    #[error(transparent)]
    Files(#[from] files::Error),
    /// Something that must come from elsewhere.
    #[error(transparent)]
    Obstacle(#[from] plan::Obstacle),
    /// A program that a chain still names is not removed.
    #[error("{} stays, for a network configuration still names it: take the entry out, then run `install-cni uninstall`", .0.display())]
    StillNamed(std::path::PathBuf),
}
