//! Runs a repair controller with the API server double, and creates pods that it repairs.

use std::sync::Arc;

use clap::Parser as _;
use istio_cni::in_place::{self, InPlace};
use prometheus_client::registry::Registry;
use repair::{self, Metrics, RepairFlags, RepairSettings};
use serde_json::{Value, json};
use serve::pods::Subscriber;
use serve::shutdown::{Shutdown, Trigger};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use test_support::api::Api;

#[derive(clap::Parser)]
#[command(args_override_self = true)]
struct Program {
    #[command(flatten)]
    flags: RepairFlags,
    #[command(flatten)]
    in_place: in_place::InPlaceFlags,
}

/// Returns settings from a command line, for node n1.
pub fn settings(line: &str) -> RepairSettings {
    let line = format!("x --repair-node-name n1 {line}");
    let Program { flags, in_place } = Program::parse_from(line.split_whitespace());
    let in_place = InPlace::parse(&in_place).unwrap();
    RepairSettings { reprogram: Some(Arc::new(in_place)), ..RepairSettings::parse(&flags).unwrap() }
}

/// A running controller, stopped on drop.
pub struct Controller {
    registry: Registry,
    trigger: Trigger,
    task: JoinHandle<()>,
}

impl Controller {
    pub fn start(api: &Api, line: &str) -> Self {
        Self::with(api.client(), settings(line))
    }

    pub fn with(client: kube::Client, settings: RepairSettings) -> Self {
        Self::counting(client, settings, Metrics::new)
    }

    /// Starts a controller without a watch of its own. Also returns the subscriber by which the test feeds the controller with pods, and
    /// the sender of the node's readiness.
    pub fn fed(api: &Api, line: &str) -> (Self, Subscriber<repair::Pod>, watch::Sender<bool>) {
        let (node_ready, ready) = watch::channel(false);
        let (feed, source) = repair::source(ready, Box::new(|_, _| None));
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let (trigger, shutdown) = Shutdown::new();
        let task = tokio::spawn(repair::follow(api.client(), source, settings(line), metrics, shutdown));
        (Self { registry, trigger, task }, feed, node_ready)
    }

    fn counting(client: kube::Client, settings: RepairSettings, metrics: fn(&mut Registry) -> Metrics) -> Self {
        let mut registry = Registry::default();
        let metrics = metrics(&mut registry);
        let (trigger, shutdown) = Shutdown::new();
        let task = tokio::spawn(repair::run(client, settings, metrics, shutdown));
        Self { registry, trigger, task }
    }

    /// Starts the watchdog for Dapr's sidecars, with a budget of actions per minute.
    pub fn of_dapr_watchdog(api: &Api, delete: bool, budget: u32) -> Self {
        let settings = RepairSettings::of_dapr_watchdog(delete, budget.try_into().unwrap());
        Self::counting(api.client(), settings, Metrics::of_dapr_watchdog)
    }

    /// Returns all metrics as text.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }

    /// Returns `Some` if the metrics contain this line, for [`Api::until`].
    pub fn counts(&self, line: &str) -> Option<()> {
        self.metrics().lines().any(|present| present == line).then_some(())
    }

    /// Requests shutdown and waits for the end.
    pub async fn end(self) {
        self.trigger.trigger();
        tokio::time::timeout(test_support::DEADLINE, self.task)
            .await
            .expect("the task ends after shutdown is requested")
            .unwrap();
    }
}

/// Returns an injected pod on node n1 before validation.
pub fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "shop", "name": name, "uid": format!("uid-of-{name}"),
            "annotations": { "sidecar.istio.io/status": "{}" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r", "controller": true }],
        },
        "spec": {
            "nodeName": "n1", "restartPolicy": "Always",
            "containers": [{ "name": "istio-proxy", "args": ["proxy", "sidecar"] }],
        },
        "status": { "phase": "Pending", "podIP": "10.0.0.7", "podIPs": [{ "ip": "10.0.0.7" }] },
    })
}

/// Returns the same pod after its validation failed and its validation container was restarted `restarts` times.
pub fn broken(name: &str, restarts: u32) -> Value {
    failing(pod(name), restarts)
}

/// Sets the status of a pod whose validation failed and waits to be restarted.
pub fn failing(mut pod: Value, restarts: u32) -> Value {
    pod["status"]["initContainerStatuses"] = json!([{
        "name": "istio-validation", "restartCount": restarts,
        "state": { "waiting": { "reason": "CrashLoopBackOff" } },
        "lastState": { "terminated": { "exitCode": 126, "reason": "Error" } },
    }]);
    pod
}

/// Sets the status of a pod whose validation first failed and then succeeded.
pub fn recovered(mut pod: Value) -> Value {
    pod["status"]["initContainerStatuses"] = json!([{
        "name": "istio-validation", "restartCount": 1,
        "state": { "terminated": { "exitCode": 0, "reason": "Completed" } },
        "lastState": { "terminated": { "exitCode": 126, "reason": "Error" } },
    }]);
    pod
}

/// Adds a broken pod `last` and waits until the controller acts on it by a request with this method and path suffix.
/// The controller has then handled all earlier events.
pub async fn flush(api: &Api, end: (&str, &str)) {
    api.put(broken("last", 0));
    api.until("action on the last pod", |api| {
        api.requests_to(end.0, end.1).iter().any(|seen| seen.path.contains("/last")).then_some(())
    })
    .await;
}
