//! `install-cni uninstall`: removes the installation from a node that no agent serves.

use std::time::Duration;

use super::Error;
use crate::install::{self, Scope};
use crate::serve::listen;
use crate::{contract, pod};

/// The time limit of the connection attempt to a running agent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The time for which pods may still be starting with the chain that the runtime read before the removal.
pub(super) const IN_FLIGHT: Duration = Duration::from_secs(2);

/// Removes the installation. Blocks. Errors are logged and do not stop the removal.
pub fn uninstall(settings: &install::Settings) -> Result<(), Error> {
    let socket = settings.run_dir.join(contract::AGENT_SOCKET);
    if pod::agent::listens(&socket, CONNECT_TIMEOUT).is_ok() {
        return Err(Error::AgentRuns(socket));
    }
    let removed = report(&install::remove(settings, Scope::ALL, IN_FLIGHT));
    for name in [contract::AGENT_SOCKET, contract::LOG_SOCKET] {
        let path = settings.run_dir.join(name);
        if let Err(error) = listen::remove_dead(&path) {
            tracing::warn!(%error, path = %path.display(), "a socket cannot be removed");
        }
    }
    removed
}

/// Logs the failures; returns an error if there are any.
pub(super) fn report(errors: &[install::Error]) -> Result<(), Error> {
    for error in errors {
        tracing::error!(%error, "not removed");
    }
    if errors.is_empty() { Ok(()) } else { Err(Error::Incomplete(errors.len())) }
}
