//! The daemon's tasks from start to end.
//!
//! An agent acts on the node while it is the node's agent: from its turn until another agent takes the sockets over, and
//! again if that one dies. What answers the plugin and the kubelet goes on meanwhile and ends last, so that pods that start
//! are answered until nothing is left to answer for.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::ending::{Ending, Keep, Successor, decide};
use super::plugin::Plugin;
use super::status::{INSTALL, note_ready, report, serves_pods};
use super::upgrade::Asker;
use super::{Error, Settings, ports, successor, taint, uninstall, upgrade};
use crate::agent::token::{self, Holder};
use crate::agent::{self, Cache, Store};
use crate::install::{Identity, Installation, Issued, Relocation, Resolver, Scope, Sources, Status};
use crate::pod::watched::Feed;
use crate::serve::health::{Liveness, Readiness};
use crate::serve::log::Log;
use crate::serve::shutdown::Shutdown;
use crate::serve::{self, cluster, signals};
use crate::{install, repair};

/// The part that waits for the list of the node's pods.
const AGENT: &str = "agent";
/// Missing from start to turn in an agent that finds another one at work.
const TURN: &str = "turn";
/// The part that is there until the daemon ends.
const DAEMON: &str = "daemon";

/// Between two looks at what an agent that waits for its turn would find.
const LOOK: Duration = Duration::from_secs(1);
/// After an attempt in vain to listen.
const PAUSE: Duration = Duration::from_secs(1);
/// How long tasks that act on the node may take to end; one that hangs in a file system never does.
const RETIREMENT: Duration = Duration::from_secs(5);

/// How files in directories that no agent mounts any more are removed.
const REMEDY: &str = "`install-cni uninstall` in a pod that mounts it removes them";

/// The API server's client, once there can be one.
type Connecting = Shared<BoxFuture<'static, Client>>;

/// Serves the node until SIGTERM, and then leaves it as it is to be left.
pub async fn run(settings: Settings, log: Log) -> Result<(), Error> {
    let told = signals::listen().map_err(Error::Signals)?;
    let mut registry = Registry::default();
    let (close, closed) = Shutdown::new();
    let daemon = Daemon::new(settings, &mut registry, &closed);
    let mut plugin = daemon.plugin(log);
    let fresh = !plugin.is_anothers().await;
    if fresh {
        // Without its sockets the agent installs all the same, and tries again: a lost chain entry waits for nothing.
        plugin.take();
    }
    let (node_ready, ready) = watch::channel(false);
    let (feed, source) = repair::source(ready);
    let feed = daemon.settings.repair.enabled.then_some(feed);
    let serving = daemon.serve(registry, feed, node_ready, &closed);
    let (retire, retired) = Shutdown::new();
    let repairing = daemon.repair(source, &retired);
    let has_acted = daemon.take_turns(&mut plugin, fresh, &told).await;
    retire.trigger();
    repairing.join_all().await;
    daemon.readiness.missing(DAEMON, "ending");
    let ending = daemon.decide(&plugin, has_acted).await;
    match ending {
        Ending::Keep(Keep::OtherNetwork { .. }) => tracing::warn!("{ending}"),
        _ => tracing::info!("{ending}"),
    }
    for path in ending.unmounted() {
        let path = path.display();
        tracing::warn!(%path, "files of the plugin stay in a directory that agents no longer mount; {REMEDY}");
    }
    let removed = match ending {
        Ending::Keep(_) => Ok(()),
        Ending::Vacate(Relocation { former, .. }) => daemon.remove(former).await,
        Ending::Remove(_) => daemon.remove(Scope::ALL).await,
    };
    close.trigger();
    tokio::join!(serving.join_all(), plugin.end());
    removed
}

/// What the tasks share.
struct Daemon {
    settings: Settings,
    client: Connecting,
    cache: Cache,
    readiness: Readiness,
    liveness: Liveness,
    status: watch::Sender<Status>,
    /// Whether this agent is the node's.
    acting: watch::Sender<bool>,
    /// What the plugin's kubeconfig is made of. The API server's name is looked up from the start: an agent that waits for its
    /// turn needs the address before it can take over.
    sources: Sources,
    /// Passes on the token of the plugin's own account.
    issued: watch::Sender<Issued>,
    metrics: Metrics,
}

/// What the parts count.
struct Metrics {
    install: install::Metrics,
    repair: repair::Metrics,
    agent: agent::Metrics,
}

impl Daemon {
    fn new(settings: Settings, registry: &mut Registry, closed: &Shutdown) -> Self {
        let readiness = Readiness::awaiting(&[INSTALL]);
        readiness.missing(AGENT, "this node's pods have not been listed yet");
        serve::metrics::register_build(registry, "cni");
        let install = install::Metrics::new(registry);
        let repair = repair::Metrics::new(registry);
        let (issued, token) = watch::channel(Issued::Pending);
        let identity = if settings.plugin_account.is_some() { Identity::Plugin(token) } else { Identity::Daemon };
        let resolver = Resolver::start(&settings.install.kubeconfig.server, closed.clone());
        Self {
            sources: Sources { resolver, identity },
            issued,
            client: connecting(settings.kubeconfig.clone()),
            cache: Cache::default(),
            readiness,
            liveness: Liveness::default(),
            status: watch::Sender::new(Status::Starting),
            acting: watch::Sender::new(false),
            settings,
            metrics: Metrics { install, repair, agent: agent::Metrics::new(registry) },
        }
    }

    /// Serves the node or stands by for the agent that does, in turn, until shutdown is requested. `taken` says that this
    /// agent holds the sockets already, or is the only one to try. Returns whether it has ever acted on the node.
    async fn take_turns(&self, plugin: &mut Plugin, taken: bool, told: &Shutdown) -> bool {
        let (mut taken, mut was_ready, mut has_acted) = (taken, false, false);
        if !taken {
            tracing::info!("another agent serves this node: this one takes over once it can do so itself");
            self.readiness.missing(TURN, "another agent serves this node, and this one is not ready to take over yet");
            tokio::select! {
                () = told.requested() => {}
                () = plugin.abandoned() => tracing::warn!("the other agent has ended before this one was ready"),
                () = self.prepared() => tracing::info!("this agent takes over"),
            }
        }
        while !told.is_requested() {
            if !taken && !self.take(plugin).await {
                continue;
            }
            has_acted = true;
            self.act(plugin, told, &mut was_ready).await;
            if told.is_requested() {
                break;
            }
            tracing::info!("another agent serves this node: this one takes over again if that one dies");
            tokio::select! {
                () = told.requested() => {}
                () = plugin.abandoned() => tracing::warn!("the other agent is gone: this one takes over again"),
            }
            taken = false;
        }
        has_acted
    }

    /// Takes the sockets over; whether that was possible.
    async fn take(&self, plugin: &mut Plugin) -> bool {
        if plugin.take() {
            self.readiness.ready(TURN);
            return true;
        }
        sleep(PAUSE).await;
        false
    }

    /// Returns once this agent could serve the node by itself: it knows the node's pods, its ports are its own, and nothing
    /// but its own work is missing on the node.
    async fn prepared(&self) {
        loop {
            let (settings, sources) = (self.settings.install.clone(), self.sources.clone());
            // A panic is told by the process's hook, and the next look tries again.
            if let Ok(obstacles) = tokio::task::spawn_blocking(move || install::obstacles(&settings, &sources)).await {
                let ours = self.readiness.lacks_at_most(&[INSTALL, AGENT, TURN]) && self.cache.read(Store::is_filled);
                if obstacles.is_empty() && ours {
                    self.status.send_replace(Status::Starting);
                    return;
                }
                self.status.send_replace(Status::from_obstacles(obstacles));
            }
            tokio::select! {
                () = sleep(LOOK) => {}
                () = self.cache.filled(), if !self.cache.read(Store::is_filled) => {}
            }
        }
    }

    /// Starts repair, which does nothing about pods while another agent serves the node.
    fn repair(&self, source: repair::Source, retired: &Shutdown) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let (client, metrics) = (self.client.clone(), self.metrics.repair.clone());
        let (settings, end) = (self.settings.repair.clone(), retired.clone());
        tasks.spawn(until(retired, async move {
            repair::follow(client.await, source, settings, metrics, end).await;
        }));
        tasks
    }

    /// Acts on the node until another agent has taken it over, or the end is wished. `was_ready`: the node has been ready by
    /// this agent's work.
    async fn act(&self, plugin: &mut Plugin, told: &Shutdown, was_ready: &mut bool) {
        let (retire, retired) = Shutdown::new();
        let mut actors = self.actors(&retired);
        self.acting.send_replace(true);
        tokio::select! {
            () = told.requested() => {}
            () = plugin.superseded() => {}
            () = note_ready(self.status.subscribe(), was_ready) => {}
        }
        self.acting.send_replace(false);
        retire.trigger();
        let ended = async { while actors.join_next().await.is_some() {} };
        if timeout(RETIREMENT, ended).await.is_err() {
            tracing::error!(
                "a task that acts on the node has not ended within {RETIREMENT:?}: is one of the node's directories hanging?"
            );
        }
        // Whether the node has all that it needs is from now on for the other agent to say. An agent that has never served
        // stays unready: a roll must not go on because of it.
        if *was_ready {
            self.status.send_replace(Status::Ready);
        }
    }

    /// Starts what changes the node or its pods. The installer waits for nobody.
    fn actors(&self, retired: &Shutdown) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let (settings, metrics) = (self.settings.install.clone(), self.metrics.install.clone());
        let (status, liveness) = (self.status.clone(), self.liveness.clone());
        let sources = self.sources.clone();
        tasks.spawn(install::run(settings, sources, metrics, status, liveness, retired.clone()));
        tasks.spawn(until(retired, foresee(self.client.clone(), self.asker())));
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

    /// What answers the plugin.
    fn plugin(&self, log: Log) -> Plugin {
        let sources = agent::Sources {
            cache: self.cache.clone(),
            installation: Installation::new(self.settings.install.clone(), self.status.subscribe()),
            metrics: self.metrics.agent.clone(),
            log,
        };
        Plugin::new(&self.settings.install.run_dir, sources, self.readiness.clone())
    }

    /// What becomes of the plugin, by what the API server and the agent that has taken over say.
    async fn decide(&self, plugin: &Plugin, has_acted: bool) -> Ending {
        let answer = upgrade::ask(self.client.clone(), self.asker()).await;
        let successor = match plugin.is_anothers().await {
            true if has_acted => successor::ask(&self.settings.install).await,
            // An agent that never had its turn has installed nothing.
            true => Successor::Installed(Relocation::default()),
            false => Successor::None,
        };
        decide(successor, answer)
    }

    /// What the API server is asked at the end.
    fn asker(&self) -> Asker {
        Asker {
            namespace: self.settings.namespace().to_owned(),
            pod: self.settings.pod.clone(),
            node: self.settings.node.clone(),
            pods: self.cache.clone(),
        }
    }

    /// Starts what keeps the token of the plugin's own account valid, where it has one.
    fn renew(&self, tasks: &mut JoinSet<()>, closed: &Shutdown) {
        let Settings { plugin_account: Some(account), node, .. } = &self.settings else { return };
        let (account, node) = (account.clone(), node.clone());
        let (client, namespace) = (self.client.clone(), self.settings.namespace().to_owned());
        let (issued, metrics) = (self.issued.clone(), self.metrics.agent.clone());
        tasks.spawn(until(closed, async move {
            let client = client.await;
            let namespace = if namespace.is_empty() { client.default_namespace().to_owned() } else { namespace };
            token::keep(client, Holder { account, namespace, node }, issued, metrics).await;
        }));
    }

    /// Starts what fills the cache, and what answers the kubelet and Prometheus.
    fn serve(
        &self,
        registry: Registry,
        feed: Option<Feed<repair::Pod>>,
        node_ready: watch::Sender<bool>,
        closed: &Shutdown,
    ) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let (client, cache, metrics) = (self.client.clone(), self.cache.clone(), self.metrics.agent.clone());
        let (node, end) = (self.settings.node.clone(), closed.clone());
        tasks.spawn(until(closed, async move {
            agent::watch(client.await, &node, &cache, &metrics, feed, end).await;
        }));
        let (cache, readiness) = (self.cache.clone(), self.readiness.clone());
        tasks.spawn(until(closed, async move {
            cache.filled().await;
            readiness.ready(AGENT);
        }));
        self.renew(&mut tasks, closed);
        tasks.spawn(until(closed, report(self.status.subscribe(), self.readiness.clone())));
        let (status, acting) = (self.status.subscribe(), self.acting.subscribe());
        tasks.spawn(until(closed, serves_pods(status, acting, self.cache.clone(), node_ready)));
        let (port, liveness) = (self.settings.health_port, self.liveness.clone());
        tasks.spawn(ports::health(port, self.readiness.clone(), liveness, closed.clone()));
        if let Some(port) = self.settings.monitoring_port {
            tasks.spawn(ports::metrics(port, Arc::new(registry), self.readiness.clone(), closed.clone()));
        }
        tasks
    }

    async fn remove(&self, scope: Scope) -> Result<(), Error> {
        let settings = self.settings.install.clone();
        let removal = tokio::task::spawn_blocking(move || install::remove(&settings, scope, uninstall::IN_FLIGHT));
        let errors = removal.await;
        uninstall::report(&errors.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic())))
    }
}

/// Warns while there is time where an upgrade could not be told from a removal.
async fn foresee(client: Connecting, asker: Asker) {
    let ending = decide(Successor::None, upgrade::ask(client, asker).await);
    if matches!(ending, Ending::Remove(_) | Ending::Keep(Keep::RightMissing(_))) {
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
            () = end.requested() => {}
            () = work => {}
        }
    }
}
