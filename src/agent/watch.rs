//! The watch of this node's pods, which fills the plugin's cache and feeds the repair controller.
//!
//! A pod is decoded straight into what is kept of it. Nothing ends this but the wish to end: the API server may be away for
//! as long as it likes.

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt as _;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{Config, DefaultBackoff, Error, Event, watcher};
use kube::{Api, Client};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::cache::{Cache, Change, Store};
use super::metrics::Metrics;
use crate::pod::watched::{Feed, Kept, Seen, Views, Watched};
use crate::pod::{ApiPod, PodFacts, PodName};
use crate::serve::shutdown::Shutdown;

/// Watches the pods of this node, applies each event to the cache and passes it to `feed`, until shutdown is requested.
pub async fn watch<T>(
    client: Client,
    node: &str,
    cache: &Cache,
    metrics: &Metrics,
    feed: Option<Feed<T>>,
    shutdown: Shutdown,
) where
    T: DeserializeOwned + Clone + Debug + Send + 'static,
{
    let watch = Watch { pods: Api::all(client), cache, metrics, feed };
    tokio::select! {
        () = shutdown.requested() => {}
        () = watch.run(node) => {}
    }
}

/// This node's pods. Failed ones are among them: a pod whose validation failed and that is never restarted is repair's.
fn selected(node: &str) -> Config {
    Config::default().fields(&format!("spec.nodeName={node},status.phase!=Succeeded"))
}

/// Why a watch has ended; others go on for ever.
enum Ended {
    NoStreaming,
    NewListWanted,
    Never,
}

struct Watch<'a, T> {
    pods: Api<Watched<Views<NodePod, T>>>,
    cache: &'a Cache,
    metrics: &'a Metrics,
    feed: Option<Feed<T>>,
}

impl<T: DeserializeOwned + Clone + Debug + Send + 'static> Watch<'_, T> {
    /// Asks for a pod at a time, where the API server can, and for a list of all of them otherwise.
    async fn run(&self, node: &str) {
        let mut streaming = true;
        loop {
            let config = selected(node);
            let config = if streaming { config.streaming_lists() } else { config.any_semantic() };
            match self.follow(config).await {
                Ended::NoStreaming => {
                    tracing::info!("the API server does not stream lists");
                    streaming = false;
                }
                Ended::NewListWanted => {}
                Ended::Never => return,
            }
        }
    }

    async fn follow(&self, config: Config) -> Ended {
        let mut events = pin!(watcher(self.pods.clone(), config).backoff(Pauses::default()));
        loop {
            let event = tokio::select! {
                event = events.try_next() => event,
                () = self.new_list_wanted() => return Ended::NewListWanted,
            };
            match event {
                Ok(Some(event)) => self.take_in(event).await,
                Ok(None) => return Ended::Never,
                Err(error) if is_refusal_to_stream(&error) => return Ended::NoStreaming,
                Err(error) => {
                    self.metrics.watch_failed();
                    tracing::warn!(error = &error as &dyn std::error::Error, "the watch of this node's pods");
                    self.pass_on(Seen::Failed).await;
                }
            }
        }
    }

    async fn new_list_wanted(&self) {
        match &self.feed {
            Some(feed) => feed.again.notified().await,
            None => std::future::pending().await,
        }
    }

    async fn take_in(&self, event: Event<Watched<Views<NodePod, T>>>) {
        let listed = matches!(event, Event::InitDone);
        let (change, seen) = split(event);
        change.into_iter().for_each(|change| self.cache.apply(change));
        self.metrics.knows(self.cache);
        if listed {
            tracing::info!(pods = self.cache.read(Store::len), "the node's pods are listed");
        }
        self.pass_on(seen).await;
    }

    /// The cache is up to date already. Whoever does not listen any more misses nothing.
    async fn pass_on(&self, seen: Seen<T>) {
        if let Some(feed) = &self.feed {
            let _ = feed.seen.send(seen).await;
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

/// What an event means to the cache, and to others.
fn split<T>(event: Event<Watched<Views<NodePod, T>>>) -> (Option<Change>, Seen<T>) {
    let known = |pod: NodePod, change: fn(PodName, PodFacts) -> Change| match pod.facts {
        _ if pod.ended => Some(Change::Gone(pod.name)),
        Ok(facts) => Some(change(pod.name, facts)),
        Err(error) => {
            tracing::warn!(pod = %pod.name, error, "a pod without facts");
            None
        }
    };
    match event {
        Event::Init => (Some(Change::ListBegins), Seen::ListBegins),
        Event::InitApply(Watched { pod: Views(pod, view), .. }) => (known(pod, Change::Listed), Seen::Pod(view)),
        Event::InitDone => (Some(Change::ListEnds), Seen::ListEnds),
        Event::Apply(Watched { pod: Views(pod, view), .. }) => (known(pod, Change::Applied), Seen::Pod(view)),
        Event::Delete(Watched { pod: Views(pod, view), .. }) => (Some(Change::Gone(pod.name)), Seen::Gone(view)),
    }
}

/// A Pod, decoded into what is kept of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "ApiPod")]
struct NodePod {
    name: PodName,
    facts: Result<PodFacts, String>,
    version: Option<String>,
    /// It has failed or succeeded: the plugin never asks for it again.
    ended: bool,
}

impl From<ApiPod> for NodePod {
    fn from(pod: ApiPod) -> Self {
        let (version, ended) = (pod.version().map(str::to_owned), pod.has_ended());
        Self { name: pod.name(), facts: pod.into_facts().map_err(|error| error.to_string()), version, ended }
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
        assert_eq!(split(Event::Apply(Views(odd, ()).into())), (None, Seen::Pod(())));
    }

    #[test]
    fn a_pod_that_has_ended_is_gone_for_the_plugin_and_not_for_others() {
        for (phase, ended) in [("Pending", false), ("Running", false), ("Failed", true), ("Succeeded", true)] {
            let json = format!(r#"{{"metadata":{{"name":"web"}},"spec":{{}},"status":{{"phase":"{phase}"}}}}"#);
            let (change, seen) = split(Event::Apply(Views(pod(&json), ()).into()));
            assert_eq!((matches!(change, Some(Change::Gone(_))), seen), (ended, Seen::Pod(())), "{phase}");
        }
    }
}
