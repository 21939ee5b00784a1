//! Installs plugin, kubeconfig and chain entry on a node, corrects deviations, and removes them.
//!
//! `daemon` calls it. A snapshot of the node gives a plan of file operations; a node is ready if its plan is empty. This module
//! sends no request to the API server, and changes no byte of a network configuration outside of its own entry.

mod directories;
mod executable;
pub mod files;
pub mod flags;
mod identity;
mod installed;
mod kubeconfig;
mod locate;
#[cfg(test)]
pub(crate) mod memory;
mod metrics;
mod mounts;
pub mod operation;
pub mod plan;
mod read;
mod reconcile;
pub mod record;
mod remove;
mod scope;
pub mod server;
pub mod set_aside;
pub mod settings;
pub mod snapshot;
mod sources;
mod status;
mod temporary;
mod throttle;

use contract::diagnostics::LogScope;

pub use directories::{Directories, Place, Relocation};
pub use flags::InstallFlags;
pub use identity::{Identity, Issued, NoAccount, Token};
pub use locate::{Located, Unlocated};
pub use metrics::{Heal, Metrics};
pub use mounts::Mounts;
pub use plan::Obstacle;
pub use read::Unread;
pub use reconcile::{obstacles, run};
pub use remove::{Error, RuntimeCache, remove, remove_with};
pub use scope::Scope;
pub use server::Resolver;
pub use settings::InstallSettings;
pub use sources::Sources;
pub use status::{Installation, Status, directories_of};

/// The scope of this module's log lines.
pub const LOG_SCOPE: LogScope = LogScope::new(module_path!(), "install");
