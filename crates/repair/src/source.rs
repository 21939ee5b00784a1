//! The source of pods: the agent's watch of its node, or repair's own watch.

use std::pin::pin;
use std::sync::Arc;

use contract::diagnostics::chain;
use futures::StreamExt as _;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use podfacts::PodName;
use podfacts::SkipReason;
use tokio::sync::{Notify, mpsc, watch};

use super::pod::Pod;
use super::settings::RepairSettings;
use serve::pods::{PodEvent, Subscriber, Watched};

/// The page size for lists of all nodes' pods.
const PAGE_SIZE: u32 = 250;
/// The capacity of the event queue, in events. Repair takes each event within microseconds; a full queue pauses the
/// watch.
const QUEUE_CAPACITY: usize = 256;

/// Returns why the plugin would also skip the next sandbox of the pod with this name and UID; `None` if it would not, or if
/// that is not known.
pub type Skipped = Box<dyn Fn(&PodName, &str) -> Option<SkipReason> + Send>;

/// The input of repair.
pub struct Source {
    pub(super) events: mpsc::Receiver<PodEvent<Pod>>,
    /// Requests a new list.
    pub(super) relist: Arc<Notify>,
    /// Whether the node redirects new pods, so that a replacement works.
    pub(super) ready: watch::Receiver<bool>,
    pub(super) skipped: Skipped,
}

/// Creates a source and its sending end. Repair performs no action while `ready` is false.
pub fn source(ready: watch::Receiver<bool>, skipped: Skipped) -> (Subscriber<Pod>, Source) {
    let ((sender, events), relist) = (mpsc::channel(QUEUE_CAPACITY), Arc::new(Notify::new()));
    (Subscriber { events: sender, relist: relist.clone() }, Source { events, relist, ready, skipped })
}

/// Lists and watches the pods that `settings` select until the receiver closes.
pub(super) async fn watch_pods(client: Client, settings: &RepairSettings, subscriber: Subscriber<Pod>) {
    while !subscriber.events.is_closed() {
        let pods = Api::<Watched<Pod>>::all(client.clone());
        tokio::select! {
            () = forward_events(pods, config(settings), &subscriber.events) => {}
            () = subscriber.relist.notified() => {}
        }
    }
}

async fn forward_events(pods: Api<Watched<Pod>>, config: watcher::Config, sink: &mpsc::Sender<PodEvent<Pod>>) {
    let mut events = pin!(watcher(pods, config).default_backoff());
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(Event::Init) => PodEvent::ListStarted,
            Ok(Event::InitApply(Watched { pod, .. }) | Event::Apply(Watched { pod, .. })) => PodEvent::Applied(pod),
            Ok(Event::InitDone) => PodEvent::ListDone,
            Ok(Event::Delete(Watched { pod, .. })) => PodEvent::Deleted(pod),
            Err(error) => {
                let needs = if is_forbidden(&error) { "the role must allow `list` and `watch` of `pods`" } else { "" };
                tracing::warn!(error = chain(&error), needs, "pods cannot be watched; trying again");
                PodEvent::Failed
            }
        };
        if sink.send(event).await.is_err() {
            return;
        }
    }
}

/// Returns the configuration of the watch. The pods of one node are listed from the API server's watch cache, which is
/// indexed by node; a list from etcd would read the pods of all nodes. `kube` lists from the cache only without pages.
/// The pods of all nodes are listed in pages.
fn config(settings: &RepairSettings) -> watcher::Config {
    let mut config = watcher::Config::default()
        .labels(&settings.label_selector)
        .fields(&settings.field_selector)
        .page_size(PAGE_SIZE);
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
