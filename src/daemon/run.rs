//! The daemon's tasks from start to end.
//!
//! Two wishes to end follow each other: what acts on the node ends first, what answers others ends last, so that pods that
//! start meanwhile are answered until nothing is left to answer for.

use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::ending::{Ending, decide};
use super::plugin::Plugin;
use super::{Error, Settings, ports, taint, uninstall, upgrade};
use crate::agent::{self, Cache, Sockets};
use crate::install::Status;
use crate::pod::watched::Feed;
use crate::serve::health::Readiness;
use crate::serve::log::Log;
use crate::serve::shutdown::Shutdown;
use crate::serve::{cluster, signals};
use crate::{install, repair};

/// Parts that readiness waits for.
const INSTALL: &str = "install";
const AGENT: &str = "agent";
/// The part that is there until the daemon ends.
const DAEMON: &str = "daemon";

/// The API server's client, once there can be one.
type Connecting = Shared<BoxFuture<'static, Client>>;

/// Serves the node until SIGTERM, and then leaves it as it is to be left.
pub async fn run(settings: Settings, log: Log) -> Result<(), Error> {
    let told = signals::listen().map_err(Error::Signals)?;
    let sockets = Sockets::bind(&settings.install.run_dir)?;
    let (daemon, mut registry) = (Daemon::new(settings), Registry::default());
    let (retire, retired) = Shutdown::new();
    let (close, closed) = Shutdown::new();
    let (node_ready, ready) = watch::channel(false);
    let (feed, source) = repair::source(ready);
    let acting = daemon.act(&mut registry, source, &retired);
    let metrics = agent::Metrics::new(&mut registry);
    let mut plugin = daemon.plugin(sockets, metrics.clone(), log, &closed);
    let feed = daemon.settings.repair.enabled.then_some(feed);
    let serving = daemon.serve(registry, metrics, feed, node_ready, &closed);

    tokio::select! {
        () = told.wished() => {}
        () = plugin.superseded() => {
            tracing::info!("another agent serves this node: this one does no more than answer until it is ended");
            daemon.readiness.missing(DAEMON, "another agent serves this node");
        }
    }
    retire.wish();
    acting.join_all().await;
    told.wished().await;
    daemon.readiness.missing(DAEMON, "ending");
    let answer = upgrade::ask(daemon.client.clone(), daemon.settings.namespace(), &daemon.settings.node).await;
    let ending = decide(plugin.are_anothers(), answer);
    tracing::info!("{ending}");
    let removed = match ending {
        Ending::Keep(_) => Ok(()),
        Ending::Remove(_) => daemon.remove().await,
    };
    close.wish();
    serving.join_all().await;
    plugin.end().await;
    removed
}

/// What the tasks share.
struct Daemon {
    settings: Settings,
    client: Connecting,
    cache: Cache,
    readiness: Readiness,
    status: watch::Sender<Status>,
}

impl Daemon {
    fn new(settings: Settings) -> Self {
        let readiness = Readiness::awaiting(&[INSTALL]);
        readiness.missing(AGENT, "this node's pods have not been listed yet");
        Self {
            client: connecting(settings.kubeconfig.clone()),
            cache: Cache::default(),
            readiness,
            status: watch::Sender::new(Status::Starting),
            settings,
        }
    }

    /// Starts what changes the node or its pods. The installer waits for nobody.
    fn act(&self, registry: &mut Registry, source: repair::Source, retired: &Shutdown) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let metrics = install::Metrics::new(registry);
        tasks.spawn(install::keep(self.settings.install.clone(), metrics, self.status.clone(), retired.clone()));
        let (client, metrics) = (self.client.clone(), repair::Metrics::new(registry));
        let (settings, end) = (self.settings.repair.clone(), retired.clone());
        tasks.spawn(until(retired, async move {
            repair::follow(client.await, source, settings, metrics, end).await;
        }));
        let (client, settings) = (self.client.clone(), self.settings.clone());
        tasks.spawn(until(retired, async move { foresee(client, &settings).await }));
        if let Some(key) = self.settings.startup_taint.clone() {
            let (client, node) = (self.client.clone(), self.settings.node.clone());
            let (mut status, cache) = (self.status.subscribe(), self.cache.clone());
            tasks.spawn(until(retired, async move {
                // Both at once hold from now on, or pods would wait for nothing.
                let _ = status.wait_for(|status| *status == Status::Ready).await;
                cache.filled().await;
                taint::remove(&client.await, &node, &key).await;
            }));
        }
        tasks
    }

    /// Starts what answers the plugin.
    fn plugin(&self, sockets: Sockets, metrics: agent::Metrics, log: Log, closed: &Shutdown) -> Plugin {
        let run_dir = self.settings.install.run_dir.clone();
        Plugin::new(sockets, run_dir, self.cache.clone(), metrics, log, closed.clone())
    }

    /// Starts what fills the cache, and what answers the kubelet and Prometheus.
    fn serve(
        &self,
        registry: Registry,
        metrics: agent::Metrics,
        feed: Option<Feed<repair::Pod>>,
        node_ready: watch::Sender<bool>,
        closed: &Shutdown,
    ) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let (client, cache) = (self.client.clone(), self.cache.clone());
        let (node, end) = (self.settings.node.clone(), closed.clone());
        tasks.spawn(until(closed, async move {
            agent::watch(client.await, &node, &cache, &metrics, feed, end).await;
        }));
        let (cache, readiness) = (self.cache.clone(), self.readiness.clone());
        tasks.spawn(until(closed, async move {
            cache.filled().await;
            readiness.ready(AGENT);
        }));
        tasks.spawn(until(closed, report(self.status.subscribe(), self.readiness.clone())));
        tasks.spawn(until(closed, serves_pods(self.status.subscribe(), self.cache.clone(), node_ready)));
        tasks.spawn(ports::health(self.settings.health_port, self.readiness.clone(), closed.clone()));
        if let Some(port) = self.settings.monitoring_port {
            tasks.spawn(ports::metrics(port, Arc::new(registry), self.readiness.clone(), closed.clone()));
        }
        tasks
    }

    async fn remove(&self) -> Result<(), Error> {
        let settings = self.settings.install.clone();
        let errors = tokio::task::spawn_blocking(move || install::remove(&settings, uninstall::IN_FLIGHT)).await;
        uninstall::report(&errors.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic())))
    }
}

/// Warns while there is time where an upgrade would be taken for a removal.
async fn foresee(client: Connecting, settings: &Settings) {
    let answer = upgrade::ask(client, settings.namespace(), &settings.node).await;
    if let ending @ Ending::Remove(_) = decide(false, answer) {
        let check = "POD_NAMESPACE, and the role's `get` of `daemonsets`";
        tracing::warn!(check, "if this daemon ended now, the plugin would be {ending}");
    }
}

fn connecting(kubeconfig: Option<PathBuf>) -> Connecting {
    async move { cluster::client_at_last(kubeconfig.as_deref()).await }.boxed().shared()
}

/// The work until it is done or the end is wished.
fn until(end: &Shutdown, work: impl Future<Output = ()> + Send + 'static) -> impl Future<Output = ()> + Send + 'static {
    let end = end.clone();
    async move {
        tokio::select! {
            () = end.wished() => {}
            () = work => {}
        }
    }
}

/// Keeps `ready` saying whether pods that start on this node are redirected: the plugin is installed, and the agent knows
/// the node's pods.
async fn serves_pods(mut status: watch::Receiver<Status>, cache: Cache, ready: watch::Sender<bool>) {
    cache.filled().await;
    loop {
        let installed = *status.borrow_and_update() == Status::Ready;
        ready.send_if_modified(|ready| std::mem::replace(ready, installed) != installed);
        if status.changed().await.is_err() {
            return;
        }
    }
}

/// Tells probes how far the installer is.
async fn report(mut status: watch::Receiver<Status>, readiness: Readiness) {
    loop {
        match &*status.borrow_and_update() {
            Status::Starting => readiness.missing(INSTALL, "starting"),
            Status::NotReady(missing) => readiness.missing(INSTALL, missing.join("; ")),
            Status::Ready => readiness.ready(INSTALL),
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}
