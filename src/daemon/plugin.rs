//! The agent's sockets over the daemon's life: taken when it is this agent's turn, kept while no other agent answers there,
//! and served to the end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::agent::{self, Names, Sockets, Sources};
use crate::contract;
use crate::serve::health::Readiness;
use crate::serve::listen;
use crate::serve::shutdown::{Shutdown, Trigger};
use crate::serve::watch::Watch;

/// The interval at which the sockets' names are compared where inotify reports no change.
const LOOK: Duration = Duration::from_secs(1);

/// The part of readiness that is missing while nobody listens.
const SOCKETS: &str = "sockets";

/// What answers the plugin.
pub(super) struct Plugin {
    run_dir: PathBuf,
    /// The names under which it was found last.
    names: Option<Names>,
    changes: Watch,
    sources: Sources,
    readiness: Readiness,
    /// Ends the listeners under the names.
    serving: Option<Trigger>,
    tasks: JoinSet<()>,
}

impl Plugin {
    /// Answers nobody before it has [taken](Self::take) the sockets, and then until its [end](Self::end).
    pub(super) fn new(run_dir: &Path, sources: Sources, readiness: Readiness) -> Self {
        // The plugin writes a line for each pod that starts.
        let changes = Watch::new([run_dir.to_owned()]).except(|name| name == contract::LOG_FILE);
        let (run_dir, tasks) = (run_dir.to_owned(), JoinSet::new());
        Self { run_dir, names: None, changes, sources, readiness, serving: None, tasks }
    }

    /// Listens under the sockets' names; whether that was possible. Another agent that listened there keeps the connections that
    /// it has; former listeners of this one end. While it is not possible, the agent is not ready.
    pub(super) fn take(&mut self) -> bool {
        match self.listen() {
            Ok(()) => self.readiness.ready(SOCKETS),
            Err(error) => {
                tracing::error!(%error, "the plugin cannot reach the agent; trying again");
                self.readiness.missing(SOCKETS, error.to_string());
                return false;
            }
        }
        true
    }

    fn listen(&mut self) -> Result<(), listen::Error> {
        let sockets = Sockets::bind(&self.run_dir)?;
        self.names = Some(sockets.names());
        let (end, ended) = Shutdown::new();
        self.tasks.spawn(agent::serve(sockets, self.sources.clone(), ended));
        self.serving = Some(end);
        while self.tasks.try_join_next().is_some() {}
        Ok(())
    }

    /// Returns once another agent answers under the names. A name that was removed, or could not be taken before, is taken.
    pub(super) async fn superseded(&mut self) {
        loop {
            self.changes.renew();
            if self.is_anothers().await {
                return;
            }
            let is_lost = match &self.names {
                Some(names) => names.are_lost().await,
                None => true,
            };
            if !is_lost {
                self.changes.changed(LOOK).await;
            } else if self.take() {
                tracing::warn!(dir = %self.run_dir.display(), "the agent's sockets were missing; they are there again");
            } else {
                // The attempt itself has changed the directory, so its events say nothing.
                sleep(LOOK).await;
            }
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
