//! Owns the agent's sockets: takes them over, restores them while no other agent serves them, and serves until shutdown.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serve::health::Readiness;
use serve::listen;
use serve::shutdown::{Shutdown, Trigger};
use serve::tasks::Supervisor;
use serve::watch::Watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::agent::{self, Abandoned, Names, Sockets, Sources};

/// The interval between two checks whether the paths still lead to this agent's sockets, if inotify reports no change.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The time within which an agent that stands by takes over sockets that this agent offers. The offer arrives at once; the rest is
/// for a loaded node.
const HANDOVER: Duration = Duration::from_secs(3);
/// The interval between two checks whether another agent has taken over.
const HANDOVER_INTERVAL: Duration = Duration::from_millis(20);

/// The [`Readiness`] part that is not ready while this agent cannot listen.
const PART: &str = "sockets";

/// The sockets on which the agent serves the plugin.
pub(super) struct AgentSockets {
    run_dir: PathBuf,
    /// The names of the sockets that this agent bound last; `None` before its first takeover.
    names: Option<Names>,
    changes: Watch,
    sources: Sources,
    readiness: Readiness,
    supervisor: Supervisor,
    /// Ends the listeners of these sockets.
    shutdown: Option<Trigger>,
    tasks: JoinSet<()>,
}

impl AgentSockets {
    /// Creates the value without sockets. It serves from [`take_over`](Self::take_over) to
    /// [`shut_down`](Self::shut_down).
    pub(super) fn new(run_dir: &Path, sources: Sources, readiness: Readiness, supervisor: Supervisor) -> Self {
        // Changes of the log file are ignored: the plugin writes a line to it for each pod that starts.
        let changes = Watch::new([run_dir.to_owned()]).except(|name| name == contract::LOG_FILE);
        let (run_dir, tasks) = (run_dir.to_owned(), JoinSet::new());
        Self { run_dir, names: None, changes, sources, readiness, supervisor, shutdown: None, tasks }
    }

    /// Binds the sockets; returns whether that succeeded. Another agent keeps the connections that it has accepted;
    /// former listeners of this agent end. After a failure the agent is not ready.
    pub(super) fn take_over(&mut self) -> bool {
        match self.listen() {
            Ok(()) => self.readiness.ready(PART),
            Err(error) => {
                tracing::error!(%error, "the plugin cannot reach the agent; trying again");
                self.readiness.missing(PART, error.to_string());
                return false;
            }
        }
        true
    }

    fn listen(&mut self) -> Result<(), listen::Error> {
        let sockets = Sockets::bind(&self.run_dir)?;
        self.names = Some(sockets.names());
        let (end, ended) = Shutdown::new();
        let serving = agent::serve(sockets, self.sources.clone(), ended.clone());
        self.tasks.spawn(self.supervisor.run_to_end("sockets", &ended, serving));
        self.shutdown = Some(end);
        while self.tasks.try_join_next().is_some() {}
        Ok(())
    }

    /// Returns once another agent has taken over the sockets. Until then, binds them again if they are removed, or if binding
    /// has failed.
    pub(super) async fn until_superseded(&mut self) {
        loop {
            self.changes.renew();
            if self.is_taken_over().await {
                return;
            }
            let is_lost = match &self.names {
                Some(names) => names.are_lost().await,
                None => true,
            };
            if !is_lost {
                self.changes.changed(POLL_INTERVAL).await;
            } else if self.take_over() {
                tracing::warn!(dir = %self.run_dir.display(), "the agent's sockets were missing; they are there again");
            } else {
                // The failed attempt has changed the directory, so a wait for a change would end at once, and the loop
                // would not pause.
                sleep(POLL_INTERVAL).await;
            }
        }
    }

    /// Whether another agent serves the plugin.
    pub(super) async fn is_taken_over(&self) -> bool {
        match &self.names {
            Some(names) => names.are_taken_over().await,
            None => listen::is_served(&self.socket()).await,
        }
    }

    /// Returns once no other agent serves the plugin, or the agent that serves it offers its sockets.
    pub(super) async fn until_abandoned(&self) -> Abandoned {
        agent::until_abandoned(&self.socket()).await
    }

    fn socket(&self) -> PathBuf {
        self.run_dir.join(contract::AGENT_SOCKET)
    }

    /// Offers the sockets, and returns whether an agent that stands by takes them over within [`HANDOVER`]. This agent serves them
    /// until then. Returns false at once if no agent stands by.
    pub(super) async fn hand_over(&self) -> bool {
        let handover = &self.sources.handover;
        if !handover.is_awaited() {
            return false;
        }
        handover.offer();
        let taken_over = async {
            while !self.is_taken_over().await {
                sleep(HANDOVER_INTERVAL).await;
            }
        };
        let is_taken_over = timeout(HANDOVER, taken_over).await.is_ok();
        // An agent that accepted the offer during the removal would install what this agent removes.
        handover.withdraw();
        is_taken_over || self.is_taken_over().await
    }

    /// Waits for the last responses and removes the socket files.
    pub(super) async fn shut_down(self) {
        drop(self.shutdown);
        self.tasks.join_all().await;
        for error in self.names.iter().flat_map(Names::remove) {
            tracing::warn!(%error, "a socket cannot be removed");
        }
    }
}
