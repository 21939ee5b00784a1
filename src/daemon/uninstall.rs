//! `install-cni uninstall`: removes the installation from a node that no agent serves.

use std::sync::Arc;
use std::time::Duration;

use serve::listen;

use super::Error;
use crate::install::{self, Located, Obstacle, RuntimeCache, Scope, Sources};

/// The time limit of the connection attempt to a running agent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The period in which pods may still be starting with the chain that the runtime read before the removal. A removal waits for four
/// such periods. The agent's other work at shutdown takes 18 seconds at most, and its grace period is 30 seconds.
const IN_FLIGHT: Duration = Duration::from_secs(2);

/// Removes the installation. Blocks. Errors are logged and do not stop the removal. Nothing is removed if the directories are
/// `auto` and cannot be located.
pub fn uninstall(mut settings: install::InstallSettings) -> Result<(), Error> {
    let socket = settings.run_dir.join(contract::AGENT_SOCKET);
    if lookup::agent::listens(&socket, CONNECT_TIMEOUT).is_ok() {
        return Err(Error::AgentRuns(socket));
    }
    let removed = match Located::at_start(&mut settings).unknown() {
        Some(unknown) => report(&[Obstacle::from(unknown.clone()).into()], &settings),
        None => report(&install::remove(&settings, Scope::ALL, IN_FLIGHT), &settings),
    };
    listen::remove_unfinished(&settings.run_dir, Duration::ZERO);
    for name in [contract::AGENT_SOCKET, contract::LOG_SOCKET] {
        let path = settings.run_dir.join(name);
        if let Err(error) = listen::remove_dead(&path) {
            tracing::warn!(%error, path = %path.display(), "a socket cannot be removed");
        }
    }
    removed
}

/// Removes the installation of an agent that shuts down. A replaced directory is an error, and nothing is removed: the runtime may
/// read a chain in the new directory that needs the plugin. The same holds if the directories are not known. If the cache was
/// replaced, it cannot be edited, so that the plugin stays as a stub.
pub(super) async fn remove(
    settings: Arc<install::InstallSettings>,
    sources: Sources,
    scope: Scope,
) -> Result<(), Error> {
    let own = Arc::clone(&settings);
    let removal = tokio::task::spawn_blocking(move || {
        let replaced = sources.mounts.replaced().map(Obstacle::from);
        match replaced.or_else(|| sources.located.unknown().cloned().map(Obstacle::from)) {
            Some(obstacle) => vec![obstacle.into()],
            None => {
                let replaced = sources.mounts.replaced_cache();
                let mounted = RuntimeCache::Mounted(&settings.cache_dir);
                let cache = replaced.as_ref().map_or(mounted, RuntimeCache::Replaced);
                install::remove_with(&settings, scope, IN_FLIGHT, &cache)
            }
        }
    });
    report(&removal.await.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic())), &own)
}

/// Logs the failures; returns an error if there are any.
fn report(errors: &[install::Error], settings: &install::InstallSettings) -> Result<(), Error> {
    for error in errors {
        let error = error.to_string();
        tracing::error!(error = %settings.given.on_node(&error), "not removed");
    }
    if errors.is_empty() { Ok(()) } else { Err(Error::Incomplete(errors.len())) }
}
