//! The daemon's tasks: those that run from its start to its end, those of an active agent, and repair.

use std::sync::Arc;

use podfacts::PodName;
use podfacts::skipped;
use prometheus_client::registry::Registry;
use serve::shutdown::Shutdown;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::super::status::{report_readiness, watch_node_ready};
use super::super::unready::{self, Own};
use super::super::{AgentSettings, backend, daemon_set, ports, taint};
use super::{AGENT, Daemon};
use crate::agent;
use crate::agent::token::{self, TokenHolder};
use crate::install::settings::Entry;
use crate::install::{self, Status};
use serve::pods::Subscriber;

impl Daemon {
    /// Starts the renewal of the token of the plugin's service account, if it has one.
    fn renew_token(&self, tasks: &mut JoinSet<()>, closed: &Shutdown) {
        let AgentSettings { plugin_account: Some(account), node, .. } = &self.settings else { return };
        let (account, node) = (account.clone(), node.clone());
        let (client, namespace) = (self.client.clone(), self.settings.namespace().to_owned());
        let (issued, metrics) = (self.issued.clone(), self.metrics.agent.clone());
        tasks.spawn(self.supervisor.run("token", closed, async move {
            let client = client.await;
            let namespace = if namespace.is_empty() { client.default_namespace().to_owned() } else { namespace };
            token::renew(client, TokenHolder { account, namespace, node }, issued, metrics).await;
        }));
    }

    /// Starts the watch of pods and the servers for the kubelet and Prometheus.
    pub(super) fn serve(
        &self,
        registry: Registry,
        feed: Option<Subscriber<repair::Pod>>,
        node_ready: watch::Sender<bool>,
        closed: &Shutdown,
    ) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let (client, cache, metrics) = (self.client.clone(), self.cache.clone(), self.metrics.agent.clone());
        let (node, end) = (self.settings.node.clone(), closed.clone());
        let tasks_of = &self.supervisor;
        tasks.spawn(tasks_of.run("pods", closed, async move {
            agent::watch(client.await, &node, &cache, &metrics, feed, end).await;
        }));
        let (cache, readiness) = (self.cache.clone(), self.readiness.clone());
        tasks.spawn(tasks_of.run_once("first list", closed, async move {
            cache.synced().await;
            readiness.ready(AGENT);
        }));
        self.renew_token(&mut tasks, closed);
        let look = backend::report(&self.settings, &self.reporter, self.metrics.agent.clone());
        tasks.spawn(tasks_of.run("backend", closed, look));
        let report = report_readiness(self.status.subscribe(), self.readiness.clone());
        tasks.spawn(tasks_of.run("readiness", closed, report));
        let (status, acting) = (self.status.subscribe(), self.is_active.subscribe());
        let watch = watch_node_ready(status, acting, self.cache.clone(), node_ready);
        tasks.spawn(tasks_of.run("node readiness", closed, watch));
        let (port, liveness) = (self.settings.health_port, self.liveness.clone());
        let health = ports::health(port, self.readiness.clone(), liveness, closed.clone());
        tasks.spawn(tasks_of.run_to_end("health port", closed, health));
        if let Some(port) = self.settings.monitoring_port {
            let reporter = self.settings.status_page.then(|| Arc::clone(&self.reporter));
            let monitoring = ports::monitoring(port, registry.into(), reporter, self.readiness.clone(), closed.clone());
            tasks.spawn(tasks_of.run_to_end("monitoring port", closed, monitoring));
        }
        tasks
    }

    /// Starts the tasks that change the node or its pods. The installer waits for no other task.
    pub(super) fn start_active_tasks(&self, stopped: &Shutdown) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let (settings, metrics) = (self.settings.install.clone(), self.metrics.install.clone());
        let (status, liveness) = (self.status.clone(), self.liveness.clone());
        let sources = self.sources.clone();
        let installer = install::run(settings, sources, metrics, status, liveness, stopped.clone());
        tasks.spawn(self.supervisor.run_to_end("installation", stopped, installer));
        let warning = daemon_set::warn_of_removal(self.client.clone(), self.query());
        tasks.spawn(self.supervisor.auxiliary().run_once("removal warning", stopped, warning));
        if let Some(key) = self.settings.startup_taint.clone() {
            let (client, node) = (self.client.clone(), self.settings.node.clone());
            let (mut status, cache) = (self.status.subscribe(), self.cache.clone());
            tasks.spawn(self.supervisor.run_once("startup taint", stopped, async move {
                // Pods can be redirected once the plugin is installed and the node's pods have been listed.
                let _ = status.wait_for(|status| *status == Status::Ready).await;
                cache.synced().await;
                taint::remove(&client.await, &node, &key).await;
            }));
        }
        tasks
    }

    /// Returns the function that predicts whether the plugin will skip the next CRI sandbox of a pod.
    pub(super) fn skipped(&self) -> repair::Skipped {
        let (cache, install) = (self.cache.clone(), self.settings.install.clone());
        Box::new(move |pod, uid| {
            let Entry { pod_namespace, exclude_namespaces, .. } = &install.entry;
            cache.read(|pods| skipped(pod, pods.facts(pod, uid)?, Some(pod_namespace), exclude_namespaces))
        })
    }

    /// Starts repair, which acts on no pod while another agent serves the node.
    pub(super) fn repair(&self, source: repair::Source, stopped: &Shutdown) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let (client, metrics) = (self.client.clone(), self.metrics.repair.clone());
        let (settings, end) = (self.settings.repair.clone(), stopped.clone());
        let is_enabled = settings.enabled;
        let repair = async move { repair::follow(client.await, source, settings, metrics, end).await };
        if is_enabled {
            tasks.spawn(self.supervisor.auxiliary().run("repair", stopped, repair));
        } else {
            tasks.spawn(self.supervisor.auxiliary().run_once("repair", stopped, repair));
        }
        tasks
    }

    /// Starts the task that reports why the agent is not ready, until shutdown is requested.
    pub(super) fn report_unready(&self, tasks: &mut JoinSet<()>, shutdown: &Shutdown) {
        let pod = PodName { namespace: self.settings.namespace().to_owned(), name: self.settings.pod.clone() };
        let own = Own { pod, node: self.settings.node.clone(), cache: self.cache.clone() };
        let report = unready::report(self.readiness.clone(), own, self.client.clone());
        tasks.spawn(self.supervisor.auxiliary().run("unready report", shutdown, report));
    }
}
