//! `install-cni uninstall`: removes the installation from a node that no agent serves.

use std::sync::Arc;
use std::time::Duration;

use super::Error;
use crate::install::{self, Mounts, Obstacle, Scope};
use crate::serve::listen;
use crate::{contract, pod};

/// The time limit of the connection attempt to a running agent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The time for which pods may still be starting with the chain that the runtime read before the removal.
const IN_FLIGHT: Duration = Duration::from_secs(2);

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

/// Removes the installation of an agent that ends. A replaced directory is an error, and nothing is removed: the runtime may read a
/// chain in the new directory that needs the plugin.
pub(super) async fn remove(settings: Arc<install::Settings>, mounts: Arc<Mounts>, scope: Scope) -> Result<(), Error> {
    let removal = tokio::task::spawn_blocking(move || match mounts.replaced() {
        Some(replaced) => vec![Obstacle::from(replaced).into()],
        None => install::remove(&settings, scope, IN_FLIGHT),
    });
    report(&removal.await.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic())))
}

/// Logs the failures; returns an error if there are any.
fn report(errors: &[install::Error]) -> Result<(), Error> {
    for error in errors {
        tracing::error!(%error, "not removed");
    }
    if errors.is_empty() { Ok(()) } else { Err(Error::Incomplete(errors.len())) }
}
