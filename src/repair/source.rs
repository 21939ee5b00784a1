//! Where the pods come from that repair looks at: the agent's watch of its node, or a watch of repair's own.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt as _;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::{Notify, mpsc, watch};

use super::pod::Pod;
use super::settings::Settings;
use crate::diagnostics::chain;
use crate::pod::watched::{Feed, Seen, Watched};

/// Pods in a page of a list of all nodes' pods.
const PAGE: u32 = 250;
/// Events that wait for repair, which takes each within microseconds; a watch that is held up resumes.
const QUEUE: usize = 256;

/// What repair learns from others.
#[derive(Debug)]
pub struct Source {
    /// The pods.
    pub(super) seen: mpsc::Receiver<Seen<Pod>>,
    /// Asks for a new list.
    pub(super) again: Arc<Notify>,
    /// Whether the node is ready for what would replace a pod.
    pub(super) ready: watch::Receiver<bool>,
}

/// A source and its other end. Nothing is done about pods while `ready` says no.
pub fn source(ready: watch::Receiver<bool>) -> (Feed<Pod>, Source) {
    let ((sender, seen), again) = (mpsc::channel(QUEUE), Arc::new(Notify::new()));
    (Feed { seen: sender, again: again.clone() }, Source { seen, again, ready })
}

/// Lists and watches the pods that `settings` select, for as long as somebody takes the events.
pub(super) async fn watch_pods(client: Client, settings: &Settings, feed: Feed<Pod>) {
    while !feed.seen.is_closed() {
        let pods = Api::<Watched<Pod>>::all(client.clone());
        tokio::select! {
            () = follow(pods, config(settings), &feed.seen) => {}
            () = feed.again.notified() => {}
        }
    }
}

async fn follow(pods: Api<Watched<Pod>>, config: watcher::Config, seen: &mpsc::Sender<Seen<Pod>>) {
    let mut events = pin!(watcher(pods, config).default_backoff());
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(Event::Init) => Seen::ListBegins,
            Ok(Event::InitApply(Watched { pod, .. }) | Event::Apply(Watched { pod, .. })) => Seen::Pod(pod),
            Ok(Event::InitDone) => Seen::ListEnds,
            Ok(Event::Delete(Watched { pod, .. })) => Seen::Gone(pod),
            Err(error) => {
                let needs = if is_forbidden(&error) { "the role must allow `list` and `watch` of `pods`" } else { "" };
                tracing::warn!(error = chain(&error), needs, "pods cannot be watched; trying again");
                Seen::Failed
            }
        };
        if seen.send(event).await.is_err() {
            return;
        }
    }
}

/// One node's pods come from the API server's watch cache, which knows pods by their nodes, while the store behind it
/// would read all of them; `kube` asks the cache only where it does not ask for pages. All nodes' pods come in pages.
fn config(settings: &Settings) -> watcher::Config {
    let mut config =
        watcher::Config::default().labels(&settings.label_selector).fields(&settings.field_selector).page_size(PAGE);
    if !settings.node.is_empty() {
        config = config.any_semantic();
        config.page_size = None;
    }
    config
}

fn is_forbidden(error: &watcher::Error) -> bool {
    use watcher::Error as E;
    let (E::InitialListFailed(cause) | E::WatchStartFailed(cause) | E::WatchFailed(cause)) = error else {
        return false;
    };
    matches!(cause, kube::Error::Api(status) if status.is_forbidden())
}
