//! The agent's sockets over the daemon's life: names that somebody has removed are taken anew, and those that another
//! agent has taken are left to it.

use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::agent::{self, Cache, Names, Sockets};
use crate::serve::log::Log;
use crate::serve::shutdown::Shutdown;

/// Between two looks at the names.
const LOOK: Duration = Duration::from_secs(1);

/// What answers the plugin.
pub(super) struct Plugin {
    run_dir: PathBuf,
    /// The names under which it is found.
    names: Names,
    cache: Cache,
    metrics: agent::Metrics,
    log: Log,
    closed: Shutdown,
    tasks: JoinSet<()>,
}

impl Plugin {
    /// Answers on these sockets until `closed`.
    pub(super) fn new(
        sockets: Sockets,
        run_dir: PathBuf,
        cache: Cache,
        metrics: agent::Metrics,
        log: Log,
        closed: Shutdown,
    ) -> Self {
        let (names, tasks) = (sockets.names(), JoinSet::new());
        let mut plugin = Self { run_dir, names, cache, metrics, log, closed, tasks };
        plugin.answer(sockets);
        plugin
    }

    fn answer(&mut self, sockets: Sockets) {
        self.names = sockets.names();
        let (cache, metrics, log) = (self.cache.clone(), self.metrics.clone(), self.log.clone());
        self.tasks.spawn(agent::serve(sockets, cache, metrics, log, self.closed.clone()));
    }

    /// Returns once another agent has taken the names; until then they are kept.
    pub(super) async fn superseded(&mut self) {
        while !self.are_anothers() {
            if self.names.are_lost() {
                match Sockets::bind(&self.run_dir) {
                    Ok(sockets) => {
                        tracing::warn!(dir = %self.run_dir.display(), "somebody removed the agent's sockets; they are there again");
                        self.answer(sockets);
                    }
                    Err(error) => tracing::error!(%error, "the plugin cannot ask the agent; trying again"),
                }
            }
            sleep(LOOK).await;
        }
    }

    /// Whether another agent has taken the names.
    pub(super) fn are_anothers(&self) -> bool {
        self.names.are_anothers()
    }

    /// Waits for the last answers, after `closed`, and gives the names up.
    pub(super) async fn end(self) {
        self.tasks.join_all().await;
        for error in self.names.remove() {
            tracing::warn!(%error, "a socket's name stays behind");
        }
    }
}
