//! The control loop: passes pod events to the tracker and performs due actions until shutdown is requested.

#![expect(clippy::disallowed_methods, reason = "the one place of repair that reads the clock")]

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use kube::Client;
use serve::shutdown::Shutdown;
use serve::tasks::panic_if_requested;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use super::act::Actor;
use super::broken::{Broken, NotBroken, detect};
use super::budget::Budget;
use super::calls::Calls;
use super::decide::{Decision, Reason};
use super::metrics::{ActionResult, Metrics};
use super::pod::Pod;
use super::settings::RepairSettings;
use super::source::{Skipped, Source, source, watch_pods};
use super::step::{RepairOutcome, Step};
use super::tracker::Tracker;
use serve::pods::PodEvent;

/// The limit of concurrent actions, which also limits the load on a slow API server.
const MAX_CONCURRENT: usize = 16;

/// Watches pods and acts on broken ones until shutdown is requested. Failures of the API server are retried with
/// back-off and never end the loop.
///
/// `client` must not retry requests itself (`kube::Config::default_retry`), which would bypass back-off and budget.
pub async fn run(client: Client, settings: RepairSettings, metrics: Metrics, shutdown: Shutdown) {
    let (_ready, always) = watch::channel(true);
    let (feed, source) = source(always, Box::new(|_, _| None));
    let (watcher, selected) = (client.clone(), settings.clone());
    tokio::select! {
        () = shutdown.requested() => {}
        () = watch_pods(watcher, &selected, feed) => {}
        () = follow(client, source, settings, metrics, shutdown.clone()) => {}
    }
}

/// Like [`run`], with the pods of an existing watch.
pub async fn follow(client: Client, source: Source, settings: RepairSettings, metrics: Metrics, shutdown: Shutdown) {
    if !settings.enabled {
        tracing::info!("repair is off");
        return;
    }
    settings.log();
    let controller = Controller::new(client, settings, metrics);
    tokio::select! {
        () = shutdown.requested() => {}
        () = controller.run(source) => {}
    }
}

/// A step and its outcome.
type Finished = (Step, RepairOutcome);

struct Controller {
    settings: Arc<RepairSettings>,
    metrics: Metrics,
    actor: Actor,
    tracker: Tracker,
    acting: JoinSet<Finished>,
    /// Tasks that record events about pods without an action.
    recording: JoinSet<()>,
    events: Budget,
    start: Instant,
}

impl Controller {
    fn new(client: Client, settings: RepairSettings, metrics: Metrics) -> Self {
        let settings = Arc::new(settings);
        let actor = Actor { calls: Calls::new(client), settings: settings.clone(), metrics: metrics.clone() };
        let (tracker, events) = (Tracker::new(settings.as_ref().clone()), Budget::shared(settings.budget));
        let (acting, recording) = (JoinSet::new(), JoinSet::new());
        Self { settings, metrics, actor, tracker, acting, recording, events, start: Instant::now() }
    }

    /// Runs until the source closes.
    async fn run(mut self, source: Source) {
        let Source { mut events, relist, mut ready, skipped } = source;
        loop {
            self.tracker.set_node_ready(*ready.borrow_and_update(), self.now());
            self.start_due();
            self.metrics.known(self.tracker.len());
            let next = self.tracker.next_due().filter(|_| self.acting.len() < MAX_CONCURRENT);
            let due = async {
                match next {
                    Some(due) => tokio::time::sleep_until((self.start + due).into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.handle_event(event, &skipped),
                    None => return,
                },
                Some(ended) = self.acting.join_next() => self.handle_outcome(ended),
                Some(_) = self.recording.join_next() => {}
                // If the sender was dropped, readiness cannot change, and `select!` disables this branch.
                Ok(()) = ready.changed() => {}
                () = due => {}
            }
            if self.tracker.needs_relist() {
                tracing::info!("listing pods again: fewer broken ones are tracked than the limit allows");
                self.tracker.start_list();
                relist.notify_one();
            }
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn handle_event(&mut self, event: PodEvent<Pod>, skipped: &Skipped) {
        match event {
            PodEvent::ListStarted => self.tracker.start_list(),
            PodEvent::Applied(pod) => match detect(&pod, &self.settings) {
                Ok(broken) => {
                    let skipped = skipped(&broken.pod, &broken.uid);
                    self.tracker.insert(Broken { skipped, ..broken }, self.now());
                }
                Err(reason) => self.handle_not_broken(&pod, reason),
            },
            PodEvent::Deleted(pod) => self.tracker.remove(pod.uid()),
            PodEvent::ListDone => self.tracker.end_list(),
            PodEvent::Failed => self.metrics.watch_failed(),
        }
    }

    fn handle_not_broken(&mut self, pod: &Pod, reason: NotBroken) {
        if self.tracker.contains(pod.uid()) {
            tracing::info!(pod = %pod.pod_name(), %reason, "pod is no longer broken");
            self.tracker.remove(pod.uid());
        }
    }

    /// Starts due actions up to the concurrency limit.
    fn start_due(&mut self) {
        while self.acting.len() < MAX_CONCURRENT
            && let Some(step) = self.tracker.take(self.now())
        {
            log(&step, self.now());
            match step.decision {
                Decision::Nothing(Reason::Labelled) if step.is_new => {
                    self.metrics.acted(&step.broken.pod, "label", ActionResult::Skip);
                }
                Decision::Nothing(reason) | Decision::Later(_, reason) => self.record_inaction(step, reason),
                Decision::Act(action) => {
                    let actor = self.actor.clone();
                    self.acting.spawn(async move {
                        let acting = AssertUnwindSafe(async {
                            panic_if_requested("repair action");
                            actor.act(&step, action).await
                        });
                        // Without an outcome, no action on the pod would ever follow.
                        let outcome = acting.catch_unwind().await.unwrap_or_else(|_| {
                            actor.metrics.acted(&step.broken.pod, action.as_str(), ActionResult::Fail);
                            RepairOutcome::Failed { error: "panic; see the log".to_owned(), wait: None }
                        });
                        (step, outcome)
                    });
                }
            }
        }
    }

    /// Counts a pod without an action and records an event, once for each reason. Events have a budget of the same size as
    /// the budget of actions, so that many broken pods do not cause as many events.
    fn record_inaction(&mut self, step: Step, reason: Reason) {
        if !step.is_new || !reason.gives_up() {
            return;
        }
        self.metrics.left(&step.broken.pod, reason);
        let (now, namespace) = (self.now(), &step.broken.pod.namespace);
        let earliest = self.events.earliest(namespace, now);
        if self.settings.dry_run || self.recording.len() >= MAX_CONCURRENT || earliest.total.max(earliest.share) > now {
            return;
        }
        self.events.spend(namespace, now);
        let actor = self.actor.clone();
        self.recording.spawn(async move { actor.record_inaction(&step, reason, now).await });
    }

    fn handle_outcome(&mut self, ended: Result<Finished, JoinError>) {
        match ended {
            Ok((step, outcome)) => self.tracker.finish(&step, &outcome, self.now()),
            Err(error) => tracing::error!(%error, "a repair action ended without a result"),
        }
    }
}

/// Logs a decision. `wait_seconds` is the time until the next decision.
fn log(step: &Step, now: Duration) {
    let Broken { pod, uid, node, container, attempt, .. } = &step.broken;
    let (decision, action, reason, until) = match step.decision {
        Decision::Act(action) => ("act", Some(action.as_str()), None, None),
        Decision::Later(until, reason) => ("later", None, Some(reason.as_str()), Some(until)),
        Decision::Nothing(reason) => ("nothing", None, Some(reason.as_str()), None),
    };
    let wait_seconds = until.map(|until| until.saturating_sub(now).as_secs_f64().ceil());
    if step.is_new {
        tracing::info!(%pod, uid, node, container, attempt, decision, action, reason, wait_seconds, "broken pod");
    } else {
        tracing::debug!(%pod, uid, node, container, attempt, decision, action, reason, wait_seconds, "broken pod, as before");
    }
}
