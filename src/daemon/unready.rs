//! Reports why the agent is not ready: in its log when the reason changes and every minute, and in one Event about its own pod.
//!
//! `/readyz` has the same reasons, but the kubelet reports only the HTTP status, and the image has no shell.

#![expect(clippy::disallowed_methods, reason = "owns the clock of Events")]

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use podfacts::PodName;
use serve::event::{self, Content, Origin};
use serve::health::Readiness;
use tokio::time::timeout;

use crate::agent::{Cache, Store};

/// The time that the agent has to become ready before it reports why it is not.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time after which an unchanged reason is logged again.
const REPEAT: Duration = Duration::from_secs(60);
/// The reason of the Event.
const REASON: &str = "AgentNotReady";

/// The agent's own pod, which the Event is about.
pub(super) struct Own {
    /// If its names are empty, the pod is not known, and no Event is written.
    pub(super) pod: PodName,
    pub(super) node: String,
    /// Has the pod's UID, by which `kubectl describe` selects Events.
    pub(super) cache: Cache,
}

/// Logs the reasons and writes the Event. Never returns.
pub(super) async fn report(readiness: Readiness, own: Own, client: impl Future<Output = Client> + Clone) {
    let mut is_told = false;
    loop {
        readiness.until(|why| why.is_some()).await;
        if timeout(PATIENCE, readiness.until(|why| why.is_none())).await.is_ok() {
            continue;
        }
        while let Some(why) = readiness.report() {
            tracing::warn!(reason = reasons(&why), "the agent is not ready");
            if !is_told {
                is_told = timeout(PATIENCE, own.write_event(client.clone(), &why)).await.is_ok();
            }
            let _ = timeout(REPEAT, readiness.until(|now| now != Some(&why))).await;
        }
        tracing::info!("the agent is ready");
    }
}

/// Joins the lines of a report.
fn reasons(report: &str) -> String {
    report.trim_end().replace('\n', "; ")
}

impl Own {
    async fn write_event(&self, client: impl Future<Output = Client>, why: &str) {
        if self.pod.name.is_empty() || self.pod.namespace.is_empty() {
            return;
        }
        let event = self.event(&reasons(why), Timestamp::now());
        event::create(&client.await, &event).await;
    }

    fn event(&self, reasons: &str, now: Timestamp) -> k8s_openapi::api::core::v1::Event {
        let uid = self.cache.read(|pods: &Store| pods.uid(&self.pod).map(str::to_owned));
        let part = uid.iter().filter_map(|uid| uid.split('-').next()).map(|part| format!(".{part}"));
        let suffix = format!("unready{}", part.collect::<String>());
        let object = event::pod(&self.pod.namespace, &self.pod.name, uid.as_deref());
        let origin = Origin { component: "istio-cni", host: Some(&self.node), instance: &self.node };
        let message = format!("the agent is not ready: {reasons}");
        event::warning(object, origin, Content { reason: REASON, message: &message }, &suffix, now)
    }
}
