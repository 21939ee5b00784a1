//! The watch of this node's pods, which fills the cache.
//!
//! A pod is decoded straight into what is kept of it. Nothing ends this but the wish to end: the API server may be away for
//! as long as it likes.

use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt as _;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{Config, DefaultBackoff, Error, Event, watcher};
use kube::{Api, Client};
use serde::Deserialize;

use super::cache::{Cache, Change, Store};
use super::metrics::Metrics;
use crate::pod::watched::{Kept, Watched};
use crate::pod::{ApiPod, PodFacts, PodName};
use crate::serve::shutdown::Shutdown;

/// Keeps the cache like the API server's pods of this node until the end is wished.
pub async fn watch(client: Client, node: &str, cache: &Cache, metrics: &Metrics, shutdown: Shutdown) {
    let pods = Api::all(client);
    let kept = async {
        // A pod at a time, where the API server can; a list of all of them at once otherwise.
        if let Ended::NoStreaming = follow(&pods, selected(node).streaming_lists(), cache, metrics).await {
            tracing::info!("the API server does not stream lists");
            follow(&pods, selected(node).any_semantic(), cache, metrics).await;
        }
    };
    tokio::select! {
        () = shutdown.wished() => {}
        () = kept => {}
    }
}

/// This node's pods, without those that have ended for good.
fn selected(node: &str) -> Config {
    Config::default().fields(&format!("spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"))
}

/// Why a watch has ended; others go on for ever.
enum Ended {
    NoStreaming,
    Never,
}

async fn follow(pods: &Api<Watched<NodePod>>, config: Config, cache: &Cache, metrics: &Metrics) -> Ended {
    let mut events = pin!(watcher(pods.clone(), config).backoff(Pauses::default()));
    loop {
        match events.try_next().await {
            Ok(Some(event)) => {
                let listed = matches!(event, Event::InitDone);
                change(event).into_iter().for_each(|change| cache.apply(change));
                metrics.knows(cache);
                if listed {
                    tracing::info!(pods = cache.read(Store::len), "the node's pods are listed");
                }
            }
            Ok(None) => return Ended::Never,
            Err(error) if is_refusal_to_stream(&error) => return Ended::NoStreaming,
            Err(error) => {
                metrics.watch_failed();
                tracing::warn!(error = &error as &dyn std::error::Error, "the watch of this node's pods");
            }
        }
    }
}

/// The pauses of Kubernetes' own clients, but none longer than [`LONGEST`]: pods that start after an outage should not
/// find an agent that does not know them.
#[derive(Default)]
struct Pauses(DefaultBackoff);

/// An API server bears a request of each node in such a time, for jitter has spread them before.
const LONGEST: Duration = Duration::from_secs(5);

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|pause| pause.min(LONGEST))
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.0.reset();
    }
}

/// `sendInitialEvents` is invalid where the feature is off, and where it is unknown.
fn is_refusal_to_stream(error: &Error) -> bool {
    match error {
        Error::WatchStartFailed(kube::Error::Api(status)) => matches!(status.code, 400 | 422),
        Error::WatchError(status) => matches!(status.code, 400 | 422),
        _ => false,
    }
}

fn change(event: Event<Watched<NodePod>>) -> Option<Change> {
    let known = |Watched { pod, .. }: Watched<NodePod>, change: fn(PodName, PodFacts) -> Change| match pod.facts {
        Ok(facts) => Some(change(pod.name, facts)),
        Err(error) => {
            tracing::warn!(pod = %pod.name, error, "a pod without facts");
            None
        }
    };
    match event {
        Event::Init => Some(Change::ListBegins),
        Event::InitApply(pod) => known(pod, Change::Listed),
        Event::InitDone => Some(Change::ListEnds),
        Event::Apply(pod) => known(pod, Change::Applied),
        Event::Delete(gone) => Some(Change::Gone(gone.pod.name)),
    }
}

/// A Pod, decoded into what is kept of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "ApiPod")]
struct NodePod {
    name: PodName,
    facts: Result<PodFacts, String>,
    version: Option<String>,
}

impl From<ApiPod> for NodePod {
    fn from(pod: ApiPod) -> Self {
        let version = pod.version().map(str::to_owned);
        Self { name: pod.name(), facts: pod.into_facts().map_err(|error| error.to_string()), version }
    }
}

impl Kept for NodePod {
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
    fn pauses_grow_and_go_on_for_ever_but_not_beyond_the_longest() {
        let pauses: Vec<Duration> = Pauses::default().take(50).collect();
        assert!(pauses[0] < Duration::from_secs(2), "{pauses:?}");
        assert_eq!((pauses.len(), pauses[49]), (50, LONGEST));
    }

    #[test]
    fn a_pod_whose_facts_cannot_be_is_left_to_the_plugins_fallback() {
        let odd = pod(
            r#"{"metadata":{"name":"web"},"spec":{"containers":[{"name":"istio-proxy","securityContext":{"runAsUser":-1}}]}}"#,
        );
        assert_eq!(change(Event::Apply(odd.into())), None);
    }
}
