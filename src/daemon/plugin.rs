//! The agent's sockets over the daemon's life: taken when it is this agent's turn, kept while no other agent answers there,
//! and served to the end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::agent::{self, Cache, Names, Sockets};
use crate::contract;
use crate::serve::listen;
use crate::serve::log::Log;
use crate::serve::shutdown::{Shutdown, Trigger};
use crate::serve::watch::Watch;

/// The interval at which the sockets' names are compared where inotify reports no change.
const LOOK: Duration = Duration::from_secs(1);

/// What answers the plugin.
pub(super) struct Plugin {
    run_dir: PathBuf,
    /// The names under which it was found last.
    names: Option<Names>,
    changes: Watch,
    cache: Cache,
    metrics: agent::Metrics,
    log: Log,
    /// Ends the listeners under the names.
    serving: Option<Trigger>,
    tasks: JoinSet<()>,
}

impl Plugin {
    /// Answers nobody before it has [taken](Self::take) the sockets, and then until its [end](Self::end).
    pub(super) fn new(run_dir: &Path, cache: Cache, metrics: agent::Metrics, log: Log) -> Self {
        // The plugin writes a line for each pod that starts.
        let changes = Watch::new([run_dir.to_owned()]).except(|name| name == contract::LOG_FILE);
        let (run_dir, tasks) = (run_dir.to_owned(), JoinSet::new());
        Self { run_dir, names: None, changes, cache, metrics, log, serving: None, tasks }
    }

    /// Listens under the sockets' names. Another agent that listened there keeps the connections that it has; former listeners of
    /// this one end.
    pub(super) fn take(&mut self) -> Result<(), listen::Error> {
        let sockets = Sockets::bind(&self.run_dir)?;
        self.names = Some(sockets.names());
        let (cache, metrics, log) = (self.cache.clone(), self.metrics.clone(), self.log.clone());
        let (end, ended) = Shutdown::new();
        self.tasks.spawn(agent::serve(sockets, cache, metrics, log, ended));
        self.serving = Some(end);
        while self.tasks.try_join_next().is_some() {}
        Ok(())
    }

    /// Returns once another agent answers under the names; a name that was removed is taken anew.
    pub(super) async fn superseded(&mut self) {
        loop {
            self.changes.renew();
            let Some(names) = &self.names else { return };
            if names.are_anothers().await {
                return;
            }
            if names.are_lost().await {
                match self.take() {
                    Ok(()) => {
                        tracing::warn!(dir = %self.run_dir.display(), "another program removed the agent's sockets; they are there again");
                    }
                    Err(error) => tracing::error!(%error, "the plugin cannot reach the agent; trying again"),
                }
            }
            self.changes.changed(LOOK).await;
        }
    }

    /// Whether another agent answers the plugin.
    pub(super) async fn is_anothers(&self) -> bool {
        match &self.names {
            Some(names) => names.are_anothers().await,
            None => listen::is_served(&self.socket()).await,
        }
    }

    /// Returns once no other agent answers the plugin.
    pub(super) async fn abandoned(&self) {
        listen::abandoned(&self.socket()).await;
    }

    fn socket(&self) -> PathBuf {
        self.run_dir.join(contract::AGENT_SOCKET)
    }

    /// Waits for the last answers, and gives the names up.
    pub(super) async fn end(self) {
        drop(self.serving);
        self.tasks.join_all().await;
        for error in self.names.iter().flat_map(Names::remove) {
            tracing::warn!(%error, "a socket's name stays behind");
        }
    }
}
