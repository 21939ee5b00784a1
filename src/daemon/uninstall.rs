//! Removal by hand, for nodes that no agent serves any more.

use std::time::Duration;

use super::Error;
use crate::install::{self, Scope};
use crate::serve::listen;
use crate::{contract, pod};

/// How long an agent that is there may take to accept.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a pod may take to start that the runtime began before the chain was changed.
pub(super) const IN_FLIGHT: Duration = Duration::from_secs(2);

/// Takes everything off this node. Blocks; errors are logged, and the rest goes on.
pub fn uninstall(settings: &install::Settings) -> Result<(), Error> {
    let socket = settings.run_dir.join(contract::AGENT_SOCKET);
    if pod::agent::listens(&socket, PATIENCE).is_ok() {
        return Err(Error::AgentRuns(socket));
    }
    let removed = report(&install::remove(settings, Scope::ALL, IN_FLIGHT));
    for name in [contract::AGENT_SOCKET, contract::LOG_SOCKET] {
        let path = settings.run_dir.join(name);
        if let Err(error) = listen::remove_dead(&path) {
            tracing::warn!(%error, path = %path.display(), "a socket's name stays behind");
        }
    }
    removed
}

/// Logs what was not removed.
pub(super) fn report(errors: &[install::Error]) -> Result<(), Error> {
    for error in errors {
        tracing::error!(%error, "not removed");
    }
    if errors.is_empty() { Ok(()) } else { Err(Error::Incomplete(errors.len())) }
}
