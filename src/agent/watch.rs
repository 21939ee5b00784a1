//! The watch of this node's pods, which fills the agent's cache and feeds the repair controller.
//!
//! The JSON of a pod is decoded directly into the fields that the cache and the repair controller need. After a failed
//! request the watch is retried, however long the API server is unavailable; it ends only when shutdown is requested.

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt as _;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{Config, DefaultBackoff, Error, Event, watcher};
use kube::{Api, Client};
use podfacts::{ApiPod, PodFacts, PodName};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serve::shutdown::Shutdown;

use super::cache::{Cache, Change, Store};
use super::metrics::Metrics;
use serve::pods::{PartialPod, PodEvent, PodParts, Subscriber, Watched};

/// Watches the pods of this node, applies each event to the cache and passes it to `subscriber`, until shutdown is
/// requested.
pub async fn watch<T>(
    client: Client,
    node: &str,
    cache: &Cache,
    metrics: &Metrics,
    subscriber: Option<Subscriber<T>>,
    shutdown: Shutdown,
) where
    T: DeserializeOwned + Clone + Debug + Send + 'static,
{
    let watch = Watch { pods: Api::all(client), cache, metrics, subscriber };
    tokio::select! {
        () = shutdown.requested() => {}
        () = watch.run(node) => {}
    }
}

/// Selects this node's pods. Failed pods are included: repair handles pods whose validation failed and that are never
/// restarted.
fn watch_config(node: &str) -> Config {
    Config::default().fields(&format!("spec.nodeName={node},status.phase!=Succeeded"))
}

/// Why a watch ended.
enum Ended {
    NoStreaming,
    RelistRequested,
    StreamClosed,
}

struct Watch<'a, T> {
    pods: Api<Watched<PodParts<NodePod, T>>>,
    cache: &'a Cache,
    metrics: &'a Metrics,
    subscriber: Option<Subscriber<T>>,
}

impl<T: DeserializeOwned + Clone + Debug + Send + 'static> Watch<'_, T> {
    /// Watches with streaming lists, which need less memory, or with ordinary lists if the API server does not stream.
    async fn run(&self, node: &str) {
        let mut streaming = true;
        loop {
            let config = watch_config(node);
            let config = if streaming { config.streaming_lists() } else { config.any_semantic() };
            match self.follow(config).await {
                Ended::NoStreaming => {
                    tracing::info!("the API server does not stream lists");
                    streaming = false;
                }
                Ended::RelistRequested => {}
                Ended::StreamClosed => return,
            }
        }
    }

    async fn follow(&self, config: Config) -> Ended {
        let mut events = pin!(watcher(self.pods.clone(), config).backoff(CappedBackoff::default()));
        loop {
            let event = tokio::select! {
                event = events.try_next() => event,
                () = self.relist_requested() => return Ended::RelistRequested,
            };
            match event {
                Ok(Some(event)) => self.handle_event(event).await,
                Ok(None) => return Ended::StreamClosed,
                Err(error) if lacks_streaming_lists(&error) => return Ended::NoStreaming,
                Err(error) => {
                    self.metrics.watch_failed();
                    tracing::warn!(error = &error as &dyn std::error::Error, "the watch of this node's pods failed");
                    self.publish(PodEvent::Failed).await;
                }
            }
        }
    }

    async fn relist_requested(&self) {
        match &self.subscriber {
            Some(subscriber) => subscriber.relist.notified().await,
            None => std::future::pending().await,
        }
    }

    async fn handle_event(&self, event: Event<Watched<PodParts<NodePod, T>>>) {
        let listed = matches!(event, Event::InitDone);
        let (change, pod_event) = split(event);
        change.into_iter().for_each(|change| self.cache.apply(change));
        self.metrics.set_cache(self.cache);
        if listed {
            tracing::info!(pods = self.cache.read(Store::len), "the node's pods are listed");
        }
        self.publish(pod_event).await;
    }

    /// Sends an event to the subscriber, unless the subscriber has ended. The caller updates the cache first.
    async fn publish(&self, pod_event: PodEvent<T>) {
        if let Some(subscriber) = &self.subscriber {
            let _ = subscriber.events.send(pod_event).await;
        }
    }
}

/// The backoff of Kubernetes' own clients, but at most [`MAX_BACKOFF`], so that the cache is soon up to date after an
/// outage.
#[derive(Default)]
struct CappedBackoff(DefaultBackoff);

/// The longest pause between two attempts. An API server can serve one request of each node in this time; the jitter of
/// the earlier pauses spreads the requests.
const MAX_BACKOFF: Duration = Duration::from_secs(5);

impl Iterator for CappedBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|pause| pause.min(MAX_BACKOFF))
    }
}

impl Backoff for CappedBackoff {
    fn reset(&mut self) {
        self.0.reset();
    }
}

/// Whether the error reports that `sendInitialEvents` is invalid: the feature is disabled or unknown.
fn lacks_streaming_lists(error: &Error) -> bool {
    match error {
        Error::WatchStartFailed(kube::Error::Api(status)) => matches!(status.code, 400 | 422),
        Error::WatchError(status) => matches!(status.code, 400 | 422),
        _ => false,
    }
}

/// Splits an event into the change of the cache and the event for the subscriber.
fn split<T>(event: Event<Watched<PodParts<NodePod, T>>>) -> (Option<Change>, PodEvent<T>) {
    let change = |pod: NodePod, change: fn(PodName, PodFacts) -> Change| match pod.facts {
        _ if pod.has_ended => Some(Change::Deleted(pod.name)),
        Ok(facts) => Some(change(pod.name, facts)),
        Err(error) => {
            tracing::warn!(pod = %pod.name, error, "a pod cannot be read");
            None
        }
    };
    match event {
        Event::Init => (Some(Change::ListStarted), PodEvent::ListStarted),
        Event::InitApply(Watched { pod: PodParts(pod, view), .. }) => {
            (change(pod, Change::Listed), PodEvent::Applied(view))
        }
        Event::InitDone => (Some(Change::ListDone), PodEvent::ListDone),
        Event::Apply(Watched { pod: PodParts(pod, view), .. }) => {
            (change(pod, Change::Applied), PodEvent::Applied(view))
        }
        Event::Delete(Watched { pod: PodParts(pod, view), .. }) => {
            (Some(Change::Deleted(pod.name)), PodEvent::Deleted(view))
        }
    }
}

/// The part of a pod that the cache stores.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "ApiPod")]
struct NodePod {
    name: PodName,
    facts: Result<PodFacts, String>,
    version: Option<String>,
    /// Whether the pod has failed or succeeded: the plugin never looks it up again.
    has_ended: bool,
}

impl From<ApiPod> for NodePod {
    fn from(pod: ApiPod) -> Self {
        let (version, has_ended) = (pod.version().map(str::to_owned), pod.has_ended());
        Self { name: pod.name(), facts: pod.into_facts().map_err(|error| error.to_string()), version, has_ended }
    }
}

impl PartialPod for NodePod {
    fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(json: &str) -> NodePod {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_pod_is_decoded_by_the_plugins_own_rules() {
        let pod = pod(r#"{"metadata":{"namespace":"shop","name":"web","uid":"api","resourceVersion":"7",
            "annotations":{"kubernetes.io/config.mirror":"node","x":"y"},"managedFields":[{"manager":"m"}]},
            "spec":{"containers":[{"name":"istio-proxy"}]}}"#);
        assert_eq!(pod.name.to_string(), "shop/web");
        assert_eq!(pod.version(), Some("7"));
        let facts = pod.facts.unwrap();
        assert_eq!((facts.uid.as_str(), facts.proxy.is_some()), ("node", true));
    }

    #[test]
    fn the_backoff_grows_to_its_maximum() {
        let pauses: Vec<Duration> = CappedBackoff::default().take(50).collect();
        assert!(pauses[0] < Duration::from_secs(2), "{pauses:?}");
        assert_eq!((pauses.len(), pauses[49]), (50, MAX_BACKOFF));
    }

    #[test]
    fn a_pod_with_invalid_facts_is_not_stored() {
        let invalid = pod(
            r#"{"metadata":{"name":"web"},"spec":{"containers":[{"name":"istio-proxy","securityContext":{"runAsUser":-1}}]}}"#,
        );
        assert_eq!(split(Event::Apply(PodParts(invalid, ()).into())), (None, PodEvent::Applied(())));
    }

    #[test]
    fn a_pod_that_has_ended_is_deleted_from_the_cache_only() {
        for (phase, has_ended) in [("Pending", false), ("Running", false), ("Failed", true), ("Succeeded", true)] {
            let json = format!(r#"{{"metadata":{{"name":"web"}},"spec":{{}},"status":{{"phase":"{phase}"}}}}"#);
            let (change, pod_event) = split(Event::Apply(PodParts(pod(&json), ()).into()));
            assert_eq!(
                (matches!(change, Some(Change::Deleted(_))), pod_event),
                (has_ended, PodEvent::Applied(())),
                "{phase}"
            );
        }
    }
}
