//! Runs the daemon's tasks from start to shutdown.
//!
//! An agent is active while it owns the node's sockets: from its takeover until another agent takes them over, and again if that
//! agent ends. Only an active agent changes the node. The tasks that serve the plugin and the kubelet run all the time and end
//! last, so that lookups of starting pods are served until the plugin is removed.

mod tasks;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use jiff::Timestamp;
use kube::Client;
use prometheus_client::registry::Registry;
use serve::health::{Liveness, Readiness};
use serve::log::Log;
use serve::page::Latest;
use serve::shutdown::Shutdown;
use serve::tasks::Supervisor;
use serve::{cluster, signals};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::daemon_set::{self, Query};
use super::decide::{Action, DaemonSetState, KeepReason, decide};
use super::report::Reporter;
use super::sandboxes::{self, Sandboxes};
use super::sockets::AgentSockets;
use super::status::{INSTALL, record_ready};
use super::{AgentSettings, Error, successor, uninstall};
use crate::agent::{self, Cache, Handover, Store, Verdicts};
use crate::install;
use crate::install::{Identity, Installation, Issued, Located, Mounts, Relocation, Resolver, Scope, Sources, Status};

/// The [`Readiness`] part that is not ready until the node's pods have been listed.
const AGENT: &str = "agent";
/// The [`Readiness`] part that is not ready until the first takeover, if another agent serves the node at the start.
const TAKEOVER: &str = "takeover";
/// The [`Readiness`] part that is not ready during shutdown.
const DAEMON: &str = "daemon";

/// The interval between two checks whether this agent can take over.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The interval between two attempts to bind the sockets.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The time limit for tasks that change the node to end. The daemon then continues without waiting for them, because a task that
/// hangs in a file system never ends.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The remedy for files in directories that no agent mounts any more.
const REMEDY: &str = "`install-cni uninstall` in a pod that mounts it removes them";

/// A future that all tasks share; it returns the client for the API server once that can be created.
type SharedClient = Shared<BoxFuture<'static, Client>>;

/// Serves the node until SIGTERM, and then keeps or removes the plugin as decided by `decide`.
pub async fn run(settings: AgentSettings, log: Log) -> Result<(), Error> {
    let shutdown = signals::listen().map_err(Error::Signals)?;
    let mut registry = Registry::default();
    let (close, closed) = Shutdown::new();
    let (sandboxes, reports) = sandboxes::new(settings.install.given.root.clone());
    let daemon = Daemon::new(settings, &mut registry, log, sandboxes, &closed);
    let mut sockets = daemon.sockets();
    let start = match sockets.is_taken_over().await {
        true => Role::Waiting,
        false => {
            // The agent installs even if it cannot bind the sockets, because a missing chain entry is urgent.
            // `until_superseded` binds them later.
            sockets.take_over();
            Role::Active
        }
    };
    let (node_ready, ready) = watch::channel(false);
    let (feed, source) = repair::source(ready, daemon.skipped());
    let feed = daemon.settings.repair.enabled.then_some(feed);
    let mut server_tasks = daemon.serve(registry, feed, node_ready, &closed);
    let reports = reports.run(daemon.client.clone(), daemon.settings.node.clone());
    server_tasks.spawn(daemon.supervisor.auxiliary().run("sandboxes", &closed, reports));
    daemon.report_unready(&mut server_tasks, &shutdown);
    let (stop, stopped) = Shutdown::new();
    let repair_tasks = daemon.repair(source, &stopped);
    let was_active = daemon.alternate(&mut sockets, start, &shutdown).await;
    stop.trigger();
    repair_tasks.join_all().await;
    daemon.readiness.missing(DAEMON, "ending");
    let (action, daemon_set) = daemon.decide(&sockets, was_active).await;
    match action {
        Action::Keep(KeepReason::OtherNetwork(_)) => tracing::warn!("{action}"),
        _ => tracing::info!("{action}"),
    }
    for path in action.orphaned(&daemon_set) {
        let path = path.display();
        tracing::warn!(%path, "files of the plugin stay in a directory that agents no longer mount; {REMEDY}");
    }
    let removed = match action {
        Action::Keep(_) => Ok(()),
        Action::RemoveFormer(Relocation { former, .. }) => daemon.remove(former).await,
        Action::RemoveAll(_) => daemon.remove(Scope::ALL).await,
    };
    close.trigger();
    tokio::join!(server_tasks.join_all(), sockets.shut_down());
    removed
}

/// What this agent does on the node.
enum Role {
    /// Another agent serves the node since before this one started; this one waits until it can do so itself.
    Waiting,
    /// Takes the sockets over from another agent, which serves the node or has ended.
    TakingOver,
    /// Owns the sockets and changes the node.
    Active,
    /// Another agent has taken the sockets over; this one waits until that one ends.
    Superseded,
}

/// The state that the tasks share.
struct Daemon {
    settings: AgentSettings,
    client: SharedClient,
    cache: Cache,
    readiness: Readiness,
    liveness: Liveness,
    supervisor: Supervisor,
    status: watch::Sender<Status>,
    /// Whether this agent owns the node's sockets.
    is_active: watch::Sender<bool>,
    /// The sources of the plugin's kubeconfig. The API server's name is looked up from the start, because an agent needs the
    /// address before it can take over.
    sources: Sources,
    /// Publishes the token of the plugin's service account.
    issued: watch::Sender<Issued>,
    metrics: Metrics,
    /// Builds the reports for the status page.
    reporter: Arc<Reporter>,
    sandboxes: Sandboxes,
}

/// The metrics of the modules.
struct Metrics {
    install: install::Metrics,
    repair: repair::Metrics,
    agent: agent::Metrics,
}

impl Daemon {
    #[expect(clippy::disallowed_methods, reason = "records when the agent started")]
    fn new(
        mut settings: AgentSettings,
        registry: &mut Registry,
        log: Log,
        sandboxes: Sandboxes,
        closed: &Shutdown,
    ) -> Self {
        let located = Located::at_start(Arc::make_mut(&mut settings.install));
        let readiness = Readiness::awaiting(&[INSTALL]);
        readiness.missing(AGENT, "this node's pods have not been listed yet");
        serve::metrics::register_build(registry, "cni");
        let install = install::Metrics::new(registry);
        let repair = repair::Metrics::new(registry);
        let (issued, token) = watch::channel(Issued::Pending);
        let identity = if settings.plugin_account.is_some() { Identity::Plugin(token) } else { Identity::Daemon };
        let liveness = Liveness::default();
        let supervisor =
            Supervisor::new(registry.sub_registry_with_prefix("istio_cni"), readiness.clone(), liveness.clone());
        let resolver = Resolver::start(&settings.install.kubeconfig.server, &supervisor, closed);
        let (cache, is_active) = (Cache::default(), watch::Sender::new(false));
        let reporter = Arc::new(Reporter {
            node: settings.node.clone(),
            started: Timestamp::now(),
            readiness: readiness.clone(),
            is_active: is_active.subscribe(),
            cache: cache.clone(),
            verdicts: Verdicts::default(),
            install: install.clone(),
            repair: repair.clone(),
            log,
            latest: Latest::default(),
        });
        Self {
            sources: Sources {
                resolver,
                identity,
                mounts: Arc::new(Mounts::of(&settings.install)),
                located: Arc::new(located),
            },
            issued,
            client: connect(settings.kubeconfig.clone()),
            cache,
            readiness,
            liveness,
            supervisor,
            status: watch::Sender::new(Status::Starting),
            is_active,
            settings,
            metrics: Metrics { install, repair, agent: agent::Metrics::new(registry) },
            reporter,
            sandboxes,
        }
    }

    /// Runs this agent in its roles until shutdown is requested. Returns whether it was ever active.
    async fn alternate(&self, sockets: &mut AgentSockets, start: Role, shutdown: &Shutdown) -> bool {
        let (mut role, mut was_ready, mut was_active) = (start, false, false);
        while !shutdown.is_requested() {
            role = match role {
                Role::Waiting => {
                    self.wait(sockets, shutdown).await;
                    Role::TakingOver
                }
                Role::TakingOver => self.take_over(sockets).await,
                Role::Active => {
                    was_active = true;
                    self.run_active(sockets, shutdown, &mut was_ready).await;
                    Role::Superseded
                }
                Role::Superseded => {
                    tracing::info!("another agent serves this node: this one takes over again if that one ends");
                    tokio::select! {
                        () = shutdown.requested() => {}
                        why = sockets.until_abandoned() => tracing::warn!("{why}: this one takes over again"),
                    }
                    Role::TakingOver
                }
            };
        }
        was_active
    }

    /// Stands by until this agent can serve the node, or the other agent does not serve it any more.
    async fn wait(&self, sockets: &mut AgentSockets, shutdown: &Shutdown) {
        tracing::info!("another agent serves this node: this one takes over once it can do so itself");
        self.readiness.missing(TAKEOVER, "another agent serves this node, and this one is not ready to take over yet");
        tokio::select! {
            () = shutdown.requested() => {}
            why = sockets.until_abandoned() => tracing::warn!("{why}, before this one was ready"),
            () = self.until_prepared() => tracing::info!("this agent takes over"),
        }
    }

    /// Takes the sockets over, and returns the next role.
    async fn take_over(&self, sockets: &mut AgentSockets) -> Role {
        if sockets.take_over() {
            self.readiness.ready(TAKEOVER);
            return Role::Active;
        }
        sleep(RETRY_INTERVAL).await;
        Role::TakingOver
    }

    /// Returns once this agent can serve the node: the cache has synced, the ports are bound, and nothing prevents an installation.
    async fn until_prepared(&self) {
        loop {
            let (settings, sources, liveness) =
                (self.settings.install.clone(), self.sources.clone(), self.liveness.clone());
            // The panic hook logs a panic; the next iteration retries.
            if let Ok(obstacles) =
                tokio::task::spawn_blocking(move || install::obstacles(&settings, &sources, &liveness)).await
            {
                let is_prepared =
                    self.readiness.lacks_at_most(&[INSTALL, AGENT, TAKEOVER]) && self.cache.read(Store::has_synced);
                if obstacles.is_empty() && is_prepared {
                    self.status.send_replace(Status::Starting);
                    return;
                }
                self.status.send_replace(Status::from_obstacles(obstacles));
            }
            tokio::select! {
                () = sleep(POLL_INTERVAL) => {}
                () = self.cache.synced(), if !self.cache.read(Store::has_synced) => {}
            }
        }
    }

    /// Runs the tasks of an active agent until another one has taken over, or shutdown is requested. Sets `was_ready` once the
    /// node is ready.
    async fn run_active(&self, sockets: &mut AgentSockets, shutdown: &Shutdown, was_ready: &mut bool) {
        let (stop, stopped) = Shutdown::new();
        let mut tasks = self.start_active_tasks(&stopped);
        self.is_active.send_replace(true);
        tokio::select! {
            () = shutdown.requested() => {}
            () = sockets.until_superseded() => {}
            () = record_ready(self.status.subscribe(), was_ready) => {}
        }
        self.is_active.send_replace(false);
        stop.trigger();
        let ended = async { while tasks.join_next().await.is_some() {} };
        if timeout(STOP_TIMEOUT, ended).await.is_err() {
            tracing::error!(
                "a task that acts on the node has not ended within {STOP_TIMEOUT:?}: is one of the node's directories hanging?"
            );
        }
        // From now on the other agent reports the state of the installation. An agent that was never ready stays unready, so that
        // a rolling update does not proceed because of it.
        if *was_ready {
            self.status.send_replace(Status::Ready);
        }
    }

    /// Creates the sockets on which the agent serves the plugin.
    fn sockets(&self) -> AgentSockets {
        let sources = agent::Sources {
            cache: self.cache.clone(),
            installation: Installation::new(self.settings.install.clone(), self.status.subscribe()),
            metrics: self.metrics.agent.clone(),
            verdicts: self.reporter.verdicts.clone(),
            handlers: self.sandboxes.handlers.clone(),
            notices: self.sandboxes.notices.clone(),
            handover: Handover::default(),
            log: self.reporter.log.clone(),
        };
        AgentSockets::new(&self.settings.install.run_dir, sources, self.readiness.clone(), self.supervisor.clone())
    }

    /// Queries the DaemonSet and the agent that has taken over, and decides what happens to the plugin. All its files are removed
    /// only if no agent that stands by, for example one from another DaemonSet, takes the sockets over.
    async fn decide(&self, sockets: &AgentSockets, was_active: bool) -> (Action, DaemonSetState) {
        let daemon_set = daemon_set::query(self.client.clone(), self.query()).await;
        // An agent that does not know its directories has installed nothing either.
        let has_installed = was_active && self.sources.located.is_known();
        let successor = match successor::without_query(sockets.is_taken_over().await, has_installed) {
            Some(successor) => successor,
            None => successor::query(&self.settings.install).await,
        };
        let action = match decide(successor, &daemon_set) {
            Action::RemoveAll(_) if sockets.hand_over().await => {
                decide(successor::installed(&self.settings.install).await, &daemon_set)
            }
            action => action,
        };
        (action, daemon_set)
    }

    /// Returns the query for the DaemonSet.
    fn query(&self) -> Query {
        Query {
            namespace: self.settings.namespace().to_owned(),
            pod: self.settings.pod.clone(),
            node: self.settings.node.clone(),
            pods: self.cache.clone(),
        }
    }

    async fn remove(&self, scope: Scope) -> Result<(), Error> {
        uninstall::remove(self.settings.install.clone(), self.sources.clone(), scope).await
    }
}

fn connect(kubeconfig: Option<PathBuf>) -> SharedClient {
    async move { cluster::client_at_last(kubeconfig.as_deref()).await }.boxed().shared()
}
