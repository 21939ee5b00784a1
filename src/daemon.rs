//! The program `install-cni`: runs installer, agent, repair, health and metrics from start to shutdown.
//!
//! ```text
//! flags, environment ─ flags ─▶ AgentSettings ─ run ─▶ tasks … SIGTERM ─ daemon_set ─▶ DaemonSetState ─ decide ─▶ Action
//! ```
//!
//! Only the binary calls this module. The module itself decides only whether a shutdown belongs to an upgrade or a removal; the
//! modules that it combines make all other decisions. The installer never waits for the API server.

mod backend;
mod daemon_set;
mod decide;
mod flags;
mod page;
mod ports;
mod program;
mod report;
mod run;
mod sandboxes;
mod settings;
mod sockets;
mod status;
mod successor;
mod taint;
mod uninstall;
mod unready;

use std::io;
use std::path::PathBuf;

use contract::diagnostics::{Documented, LogScope};
use serve::log::AGENT_SCOPE;

use crate::{in_place, install};

pub use flags::AgentFlags;
pub use program::{Check, Command, Output, Program, Uninstall};
pub use run::run;
pub use settings::AgentSettings;
pub use uninstall::uninstall;

/// The scope of the daemon's log lines, which is the node agent's.
pub const LOG_SCOPE: LogScope = LogScope::new(module_path!(), AGENT_SCOPE);

/// The daemon or `install-cni uninstall` failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A flag of the installer is invalid.
    #[error(transparent)]
    Install(#[from] install::flags::Error),
    /// A flag of repair is invalid.
    #[error(transparent)]
    Repair(#[from] repair::SettingsError),
    /// A flag of repair in place is invalid.
    #[error(transparent)]
    InPlace(#[from] in_place::FlagError),
    /// The node's name, by which pods are selected, is missing.
    #[error("the name of the node is not set, and the agent selects pods by it: set NODE_NAME from spec.nodeName")]
    NoNode,
    /// No signal handler could be installed.
    #[error("signals cannot be handled: {0}")]
    Signals(io::Error),
    /// A running agent would restore the installation.
    #[error("an agent listens on {} and would restore the installation; delete the DaemonSet instead, whose agents uninstall", .0.display())]
    AgentRuns(PathBuf),
    /// Files remain; the log has an error for each.
    #[error("the removal is incomplete (errors logged above: {0}); `install-cni uninstall` tries again")]
    Incomplete(usize),
}

impl Documented for Error {
    const ENTRY: &'static str = "daemon-error";

    fn transparent(&self) -> Option<String> {
        match self {
            Self::Install(error) => Some(error.page()),
            Self::Repair(error) => Some(error.page()),
            Self::InPlace(error) => Some(error.page()),
            _ => None,
        }
    }
}
