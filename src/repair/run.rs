//! The life of the controller: what the watch says goes to the tracker, what is due is done, until the end is wished.

#![expect(clippy::disallowed_methods, reason = "the one place of repair that reads the clock")]

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt as _};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::task::{JoinError, JoinSet};

use super::act::Actor;
use super::broken::{Broken, Sound, detect};
use super::calls::Calls;
use super::decide::{Decision, Reason};
use super::metrics::{Counted, Metrics};
use super::pod::Pod;
use super::settings::Settings;
use super::step::{Outcome, Step};
use super::tracker::Tracker;
use crate::pod::watched::Watched;
use crate::serve::shutdown::Shutdown;
use crate::words::chain;

/// Actions at a time: a server that is slow to answer is not helped by more.
const MOST_AT_ONCE: usize = 16;
/// Pods in a page of a list of all nodes' pods.
const PAGE: u32 = 250;

/// Finds broken pods and does what `settings` say about them, until the end is wished. API servers that are away, refuse
/// or forget are asked again, ever more slowly; nothing that they do ends it.
///
/// `client` must not repeat requests by itself (`kube::Config::default_retry`), or it would do so behind the back of
/// back-off and budget.
pub async fn run(client: Client, settings: Settings, metrics: Metrics, shutdown: Shutdown) {
    if !settings.enabled {
        tracing::info!("repair is off");
        return;
    }
    tracing::info!(
        mode = settings.mode.as_str(),
        node = settings.node,
        dry_run = settings.dry_run,
        budget = settings.budget,
        "looking for broken pods"
    );
    let patrol = Patrol::new(client, settings, metrics);
    tokio::select! {
        () = shutdown.wished() => {}
        () = patrol.walk() => {}
    }
}

/// How a step ended; none where its task was lost.
type Ended = (Step, Outcome);

struct Patrol {
    client: Client,
    settings: Arc<Settings>,
    metrics: Metrics,
    actor: Actor,
    tracker: Tracker,
    acting: JoinSet<Ended>,
    start: Instant,
}

impl Patrol {
    fn new(client: Client, settings: Settings, metrics: Metrics) -> Self {
        let settings = Arc::new(settings);
        let actor = Actor { calls: Calls::new(client.clone()), settings: settings.clone(), metrics: metrics.clone() };
        let tracker = Tracker::new(settings.as_ref().clone());
        Self { client, settings, metrics, actor, tracker, acting: JoinSet::new(), start: Instant::now() }
    }

    /// Never ends by itself.
    async fn walk(mut self) {
        loop {
            let stream =
                watcher(Api::<Watched<Pod>>::all(self.client.clone()), config(&self.settings)).default_backoff();
            self.follow(stream).await;
            tracing::info!("listing pods anew: there is room for more broken ones");
        }
    }

    /// Follows one watch, until a new list is wanted.
    async fn follow(&mut self, stream: impl Stream<Item = watcher::Result<Event<Watched<Pod>>>>) {
        let mut stream = pin!(stream);
        while !self.tracker.wants_list() {
            self.begin();
            let next = self.tracker.next().filter(|_| self.acting.len() < MOST_AT_ONCE);
            let due = async {
                match next {
                    Some(due) => tokio::time::sleep_until((self.start + due).into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = stream.next() => match event {
                    Some(event) => self.hear(event),
                    None => return,
                },
                Some(ended) = self.acting.join_next() => self.conclude(ended),
                () = due => {}
            }
            self.metrics.known(self.tracker.len());
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn hear(&mut self, event: watcher::Result<Event<Watched<Pod>>>) {
        match event {
            Ok(Event::Init) => self.tracker.listing(),
            Ok(Event::InitApply(Watched { pod, .. }) | Event::Apply(Watched { pod, .. })) => {
                match detect(&pod, &self.settings) {
                    Ok(broken) => self.tracker.broken(broken, self.now()),
                    Err(sound) => self.sound(&pod, sound),
                }
            }
            Ok(Event::Delete(gone)) => self.tracker.forget(gone.pod.uid()),
            Ok(Event::InitDone) => self.tracker.listed(),
            Err(error) => {
                self.metrics.watch_failed();
                let needs = if is_forbidden(&error) { "the role must allow `list` and `watch` of `pods`" } else { "" };
                tracing::warn!(error = chain(&error), needs, "pods cannot be watched; trying again");
            }
        }
    }

    fn sound(&mut self, pod: &Pod, reason: Sound) {
        if self.tracker.knows(pod.uid()) {
            tracing::info!(pod = %pod.pod_name(), %reason, "pod is no longer broken");
            self.tracker.forget(pod.uid());
        }
    }

    /// Begins all that is due, as far as there is room.
    fn begin(&mut self) {
        while self.acting.len() < MOST_AT_ONCE
            && let Some(step) = self.tracker.take(self.now())
        {
            log(&step);
            match step.decision {
                Decision::Nothing(Reason::Labelled) if step.news => self.metrics.acted("label", Counted::Skip),
                Decision::Nothing(_) | Decision::Later(..) => {}
                Decision::Act(action) => {
                    let actor = self.actor.clone();
                    self.acting.spawn(async move {
                        let outcome = actor.act(&step, action).await;
                        (step, outcome)
                    });
                }
            }
        }
    }

    fn conclude(&mut self, ended: Result<Ended, JoinError>) {
        match ended {
            Ok((step, outcome)) => self.tracker.ended(&step, &outcome, self.now()),
            // Only a panic loses a task, where panics unwind.
            Err(error) => tracing::error!(%error, "an action was lost"),
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

fn log(step: &Step) {
    let (Broken { pod, uid, node, container, attempt, .. }, decision) = (&step.broken, step.decision);
    if step.news {
        tracing::info!(%pod, uid, node, container, attempt, ?decision, "broken pod");
    } else {
        tracing::debug!(%pod, uid, ?decision, "broken pod, as before");
    }
}
