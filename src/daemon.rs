//! The life of `install-cni`: installer, agent, repair, health and metrics from start to removal.
//!
//! ```text
//! flags, environment ─ flags ─▶ Settings ─ run ─▶ tasks … SIGTERM ─ upgrade ─▶ Answer ─ ending ─▶ Keep(why) | Remove(why)
//! ```
//!
//! Only the binary calls it. It joins the rooms and has no rules of its own, save the one by which an upgrade is told from
//! a removal. Nothing that the API server does delays the installer.

mod ending;
mod flags;
mod plugin;
mod ports;
mod program;
mod run;
mod selection;
mod settings;
mod status;
mod successor;
mod taint;
mod uninstall;
mod upgrade;

use std::io;
use std::path::PathBuf;

use crate::{install, repair};

pub use flags::Flags;
pub use program::{Command, Program, Uninstall};
pub use run::run;
pub use settings::Settings;
pub use uninstall::uninstall;

/// Why the daemon, or a removal by hand, ends in failure.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Flags of installing.
    #[error(transparent)]
    Install(#[from] install::flags::Error),
    /// Flags of repair.
    #[error(transparent)]
    Repair(#[from] repair::SettingsError),
    /// The pods that the agent answers for are those of a node.
    #[error("the node has no name: set NODE_NAME from spec.nodeName")]
    NoNode,
    /// The wish to end could not be heard.
    #[error("no signal can be waited for: {0}")]
    Signals(io::Error),
    /// Somebody would put back what is removed.
    #[error("an agent listens on {}: it would put everything back; delete the DaemonSet, and it removes all by itself", .0.display())]
    AgentRuns(PathBuf),
    /// Some of it is still there.
    #[error("the removal is incomplete (errors logged above: {0}); `install-cni uninstall` tries again")]
    Incomplete(usize),
}
