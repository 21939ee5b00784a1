//! The loop of the controller: events of pods go to the tracker, what is due is done, until the end is wished.

#![expect(clippy::disallowed_methods, reason = "the one place of repair that reads the clock")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use super::act::Actor;
use super::broken::{Broken, Sound, detect};
use super::budget::Budget;
use super::calls::Calls;
use super::decide::{Decision, Reason};
use super::metrics::{Counted, Metrics};
use super::pod::Pod;
use super::settings::Settings;
use super::source::{Source, source, watch_pods};
use super::step::{Outcome, Step};
use super::tracker::Tracker;
use crate::pod::watched::Seen;
use crate::serve::shutdown::Shutdown;

/// Actions at a time: a server that is slow to answer is not helped by more.
const MOST_AT_ONCE: usize = 16;

/// Finds broken pods by a watch of its own and does what `settings` say about them, until the end is wished. API servers
/// that are away, refuse or forget are asked again, ever more slowly; nothing that they do ends it.
///
/// `client` must not repeat requests by itself (`kube::Config::default_retry`), or it would do so behind the back of
/// back-off and budget.
pub async fn run(client: Client, settings: Settings, metrics: Metrics, shutdown: Shutdown) {
    let (_ready, always) = watch::channel(true);
    let (feed, source) = source(always);
    let (watcher, selected) = (client.clone(), settings.clone());
    tokio::select! {
        () = shutdown.wished() => {}
        () = watch_pods(watcher, &selected, feed) => {}
        () = follow(client, source, settings, metrics, shutdown.clone()) => {}
    }
}

/// The same for the pods of another one's watch.
pub async fn follow(client: Client, source: Source, settings: Settings, metrics: Metrics, shutdown: Shutdown) {
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
        () = patrol.walk(source) => {}
    }
}

/// How a step ended; none where its task was lost.
type Ended = (Step, Outcome);

struct Patrol {
    settings: Arc<Settings>,
    metrics: Metrics,
    actor: Actor,
    tracker: Tracker,
    acting: JoinSet<Ended>,
    /// Events about pods that are left as they are.
    telling: JoinSet<()>,
    events: Budget,
    start: Instant,
}

impl Patrol {
    fn new(client: Client, settings: Settings, metrics: Metrics) -> Self {
        let settings = Arc::new(settings);
        let actor = Actor { calls: Calls::new(client), settings: settings.clone(), metrics: metrics.clone() };
        let (tracker, events) = (Tracker::new(settings.as_ref().clone()), Budget::shared(settings.budget));
        let (acting, telling) = (JoinSet::new(), JoinSet::new());
        Self { settings, metrics, actor, tracker, acting, telling, events, start: Instant::now() }
    }

    /// Ends when nobody watches pods any more.
    async fn walk(mut self, source: Source) {
        let Source { mut seen, again, mut ready } = source;
        loop {
            self.tracker.node_is_ready(*ready.borrow_and_update(), self.now());
            self.begin();
            self.metrics.known(self.tracker.len());
            let next = self.tracker.next().filter(|_| self.acting.len() < MOST_AT_ONCE);
            let due = async {
                match next {
                    Some(due) => tokio::time::sleep_until((self.start + due).into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = seen.recv() => match event {
                    Some(event) => self.take_in(event),
                    None => return,
                },
                Some(ended) = self.acting.join_next() => self.conclude(ended),
                Some(_) = self.telling.join_next() => {}
                // Without a sender, it stays as it is.
                Ok(()) = ready.changed() => {}
                () = due => {}
            }
            if self.tracker.wants_list() {
                tracing::info!("listing pods anew: there is room for more broken ones");
                self.tracker.listing();
                again.notify_one();
            }
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn take_in(&mut self, event: Seen<Pod>) {
        match event {
            Seen::ListBegins => self.tracker.listing(),
            Seen::Pod(pod) => match detect(&pod, &self.settings) {
                Ok(broken) => self.tracker.broken(broken, self.now()),
                Err(sound) => self.sound(&pod, sound),
            },
            Seen::Gone(pod) => self.tracker.forget(pod.uid()),
            Seen::ListEnds => self.tracker.listed(),
            Seen::Failed => self.metrics.watch_failed(),
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
                Decision::Nothing(reason) | Decision::Later(_, reason) => self.leave(step, reason),
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

    /// Counts a pod that is left as it is, and tells it as an event, once for each reason. Events are limited as actions
    /// are: a storm of pods must not become one of events.
    fn leave(&mut self, step: Step, reason: Reason) {
        if !step.news || !reason.gives_up() {
            return;
        }
        self.metrics.left(reason);
        let (now, namespace) = (self.now(), &step.broken.pod.namespace);
        let room = self.events.room(namespace, now);
        if self.settings.dry_run || self.telling.len() >= MOST_AT_ONCE || room.total.max(room.share) > now {
            return;
        }
        self.events.spend(namespace, now);
        let actor = self.actor.clone();
        self.telling.spawn(async move { actor.tell_left(&step, reason, now).await });
    }

    fn conclude(&mut self, ended: Result<Ended, JoinError>) {
        match ended {
            Ok((step, outcome)) => self.tracker.ended(&step, &outcome, self.now()),
            // Only a panic loses a task, where panics unwind.
            Err(error) => tracing::error!(%error, "an action was lost"),
        }
    }
}

fn log(step: &Step) {
    let (Broken { pod, uid, node, container, attempt, .. }, decision) = (&step.broken, step.decision);
    if step.news {
        tracing::info!(%pod, uid, node, container, attempt, ?decision, "broken pod");
    } else {
        tracing::debug!(%pod, uid, ?decision, "broken pod, as before");
    }
}
