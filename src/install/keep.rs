//! Keeps the node as it should be, for as long as the daemon lives.
//!
//! `daemon` runs it as a task, whose work is done by one thread: it looks, plans, carries out, and looks again until
//! nothing is left to do. While another writer's chain lacks the plugin, pods pass the proxy by, and on a busy node each
//! step that another thread has to be woken for waits for a processor. It leaves everything in place when it ends.
#![expect(clippy::disallowed_methods, reason = "owns the installer's clock")]

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::sync::watch::Sender;
use tokio::time::timeout;

use super::files::{self, Files};
use super::identity::Identity;
use super::metrics::Metrics;
use super::plan::{self, Plan, Reason, Step};
use super::server::Resolver;
use super::settings::Settings;
use super::snapshot::{Compared, Snapshot};
use super::status::Status;
use super::temporary;
use super::throttle::Throttle;
use crate::contract;
use crate::serve::health::Liveness;
use crate::serve::shutdown::Shutdown;
use crate::serve::watch::Watch;

/// Between two looks on a node where everything is in its place.
const SAFETY_NET: Duration = Duration::from_secs(30);
/// Between two looks on one where something is missing.
const IMPATIENT: Duration = Duration::from_secs(1);
/// A look takes milliseconds. A thread that is so late hangs in the node's file system.
const HANGS: Duration = Duration::from_secs(15);
/// The thread's name for probes.
const THREAD: &str = "installer";

/// What the kubeconfig is made of, beside the service account's directory.
#[derive(Debug, Clone)]
pub struct Sources {
    /// Where the API server is.
    pub resolver: Resolver,
    /// Whose token it holds.
    pub identity: Identity,
}

impl Sources {
    /// The node as it is, with what these sources say now.
    fn snapshot(&self, settings: &Settings, compared: &mut Compared) -> Snapshot {
        let mut snapshot = Snapshot::again(settings, self.resolver.located(), compared);
        snapshot.account = self.identity.of(snapshot.account);
        snapshot
    }
}

/// Installs and mends until the end is wished; `status` tells how far the node is.
pub async fn keep(
    settings: Arc<Settings>,
    sources: Sources,
    metrics: Metrics,
    status: Sender<Status>,
    liveness: Liveness,
    shutdown: Shutdown,
) {
    while !shutdown.is_requested() {
        let (sources, liveness) = (sources.clone(), liveness.clone());
        let mut keeper = Keeper::new(Arc::clone(&settings), sources, metrics.clone(), status.clone(), liveness);
        let end = shutdown.clone();
        let trouble = match tokio::task::spawn_blocking(move || keeper.live(&end)).await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => format!("installing cannot begin: {error}"),
            // Its own panic is told by the process's hook.
            Err(_) => "installing has failed; the log says how".to_owned(),
        };
        status.send_replace(Status::NotReady(vec![trouble]));
        metrics.ready(false);
        let _ = timeout(IMPATIENT, shutdown.requested()).await;
    }
    liveness.ended(THREAD);
}

/// What an installation would wait for on the node as it is. Changes nothing.
pub fn obstacles(settings: &Settings, sources: &Sources) -> Vec<String> {
    let snapshot = sources.snapshot(settings, &mut Compared::default());
    plan::install(settings, &snapshot).obstacles.iter().map(ToString::to_string).collect()
}

struct Keeper {
    settings: Arc<Settings>,
    sources: Sources,
    metrics: Metrics,
    status: Sender<Status>,
    liveness: Liveness,
    throttle: Throttle,
    compared: Compared,
    /// The plan of the last look: what it says is logged when it is new.
    last: Plan,
    was_ready: bool,
    /// Something was changed: another look tells whether that was all.
    more: bool,
}

impl Keeper {
    fn new(
        settings: Arc<Settings>,
        sources: Sources,
        metrics: Metrics,
        status: Sender<Status>,
        liveness: Liveness,
    ) -> Self {
        let throttle = Throttle::new(Instant::now());
        let (compared, last) = (Compared::default(), Plan::default());
        let (was_ready, more) = (false, false);
        Self { settings, sources, metrics, status, liveness, throttle, compared, last, was_ready, more }
    }

    /// Until the end is wished. The thread has a runtime of its own, so that the kernel wakes the one who mends, and nobody else.
    fn live(&mut self, end: &Shutdown) -> io::Result<()> {
        Builder::new_current_thread().enable_all().build()?.block_on(self.mend(end));
        Ok(())
    }

    async fn mend(&mut self, end: &Shutdown) {
        let Settings { net_dir, bin_dir, account_dir, run_dir, .. } = &*self.settings;
        let directories = [net_dir, bin_dir, account_dir, run_dir].map(Clone::clone);
        let mut watch = Watch::new(directories).except(is_no_change);
        while !end.is_requested() {
            self.liveness.alive(THREAD, HANGS);
            watch.renew();
            self.metrics.watched(watch.is_complete());
            let complete = self.visit();
            self.liveness.alive(THREAD, SAFETY_NET + HANGS);
            if self.more {
                let wait = self.throttle.take(Instant::now());
                if self.throttle.is_fight() {
                    tracing::warn!("{}", fight(&self.last));
                }
                let _ = timeout(wait, end.requested()).await;
            } else {
                tokio::select! {
                    () = watch.changed(if complete { SAFETY_NET } else { IMPATIENT }) => {}
                    () = self.sources.resolver.changed() => {}
                    () = self.sources.identity.changed() => {}
                    () = end.requested() => {}
                }
            }
        }
    }

    /// One look and what follows from it; whether nothing was missing. Nothing is logged before it is done.
    fn visit(&mut self) -> bool {
        let snapshot = self.sources.snapshot(&self.settings, &mut self.compared);
        let plan = plan::install(&self.settings, &snapshot);
        let before = self.status.borrow().clone();
        // A node that is not ready yet hears of what is about to be done when it has failed.
        let idle = plan.steps.iter().all(|step| step.reason == Reason::Stale);
        let news = (before == Status::Ready || idle).then(|| status(&plan, &before));
        let news = news.filter(|status| self.publish(status));
        let outcome = self.carry_out(&plan);
        news.iter().for_each(say);
        self.tell(&plan, &outcome);
        let failures: Vec<String> = outcome.failures().map(ToString::to_string).collect();
        if !failures.is_empty() {
            let obstacles = plan.obstacles.iter().map(ToString::to_string);
            let status = Status::NotReady(obstacles.chain(failures).collect());
            if self.publish(&status) {
                say(&status);
            }
        }
        self.more = !outcome.done.is_empty() && outcome.failed.is_empty();
        self.last = plan;
        is_complete(&self.last)
    }

    /// Carries out what is planned. A step that fails holds back only what would otherwise name in a chain what is not there.
    fn carry_out<'p>(&self, plan: &'p Plan) -> Outcome<'p> {
        let (files, mut outcome) = (Files::new(), Outcome::default());
        let mut holds_back = false;
        for step in &plan.steps {
            if holds_back && is_of_chain(step.reason) {
                continue;
            }
            match files.perform(&step.operation) {
                Ok(()) => {
                    outcome.done.push(step);
                    if self.was_ready {
                        self.metrics.healed(step.reason);
                    }
                }
                Err(error) => {
                    self.metrics.failed(&step.operation);
                    holds_back |= is_needed_by_chain(step.reason, self.was_ready || plan.was_at_work);
                    outcome.failed.push((step, error));
                }
            }
        }
        outcome
    }

    fn tell(&self, plan: &Plan, outcome: &Outcome<'_>) {
        for step in &outcome.done {
            tracing::info!(reason = step.reason.as_str(), "{:?}", step.operation);
        }
        for (step, error) in outcome.failed.iter().filter(|(step, _)| step.reason == Reason::Stale) {
            if !self.last.steps.contains(step) {
                tracing::warn!(%error, "a temporary stays");
            }
        }
        for obstacle in plan.obstacles.iter().filter(|obstacle| !self.last.obstacles.contains(obstacle)) {
            tracing::warn!("waiting: {obstacle}");
        }
        for remark in plan.remarks.iter().filter(|remark| !self.last.remarks.contains(remark)) {
            tracing::warn!("{remark}");
        }
    }

    /// Passes a status on; whether it is news.
    fn publish(&mut self, status: &Status) -> bool {
        if *self.status.borrow() == *status {
            return false;
        }
        self.status.send_replace(status.clone());
        let ready = *status == Status::Ready;
        self.metrics.ready(ready);
        if ready {
            self.metrics.installed();
            self.was_ready = true;
        }
        true
    }
}

/// What became of a plan's steps; those in neither list were held back by a failure.
#[derive(Default)]
struct Outcome<'p> {
    done: Vec<&'p Step>,
    failed: Vec<(&'p Step, files::Error)>,
}

impl Outcome<'_> {
    /// Those that concern pods: a temporary that stays concerns none.
    fn failures(&self) -> impl Iterator<Item = &files::Error> {
        self.failed.iter().filter(|(step, _)| step.reason != Reason::Stale).map(|(_, error)| error)
    }
}

/// Whether nothing is left to do, but temporaries to remove.
fn is_complete(plan: &Plan) -> bool {
    plan.obstacles.is_empty() && plan.steps.iter().all(|step| step.reason == Reason::Stale)
}

/// Whether a step edits network configurations, which are changed in their order or not at all.
fn is_of_chain(reason: Reason) -> bool {
    use Reason::{BinaryDiffers, BinaryMissing, KubeconfigDiffers, KubeconfigMissing, Stale};
    !matches!(reason, Stale | BinaryMissing | BinaryDiffers | KubeconfigMissing | KubeconfigDiffers)
}

/// Whether no chain may be edited if this fails. An older plugin and an older token serve. Where the plugin has been at work,
/// as before a reboot, it asks the agent first, the record is written at a later look, and a chain without the plugin would let
/// pods start that nobody redirects.
fn is_needed_by_chain(reason: Reason, was_at_work: bool) -> bool {
    match reason {
        Reason::Stale | Reason::BinaryDiffers | Reason::KubeconfigDiffers => false,
        Reason::KubeconfigMissing | Reason::Recorded => !was_at_work,
        _ => true,
    }
}

/// The plugin writes a line for each pod that starts, and a temporary is no change before it gets its name: the installer's
/// own failures would otherwise wake it at once, again and again.
fn is_no_change(name: &OsStr) -> bool {
    name == contract::LOG_FILE || temporary::is_temporary(name)
}

fn say(status: &Status) {
    match status {
        Status::Ready => tracing::info!("the node is ready"),
        Status::NotReady(missing) => tracing::warn!("the node is not ready: {}", missing.join("; ")),
        Status::Starting => {}
    }
}

/// What a plan means for readiness. One that could start no pod wrongly leaves it as it was.
fn status(plan: &Plan, before: &Status) -> Status {
    if is_complete(plan) {
        return Status::Ready;
    }
    if !plan.disturbs() {
        return before.clone();
    }
    let obstacles = plan.obstacles.iter().map(ToString::to_string);
    let steps = plan.steps.iter().map(|step| format!("{}: {:?}", step.reason.as_str(), step.operation));
    Status::NotReady(obstacles.chain(steps).collect())
}

/// Whom an operator should look for.
fn fight(plan: &Plan) -> String {
    let path = plan.network.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let remedy =
        if path.contains("cilium") { "; Cilium does so unless it is installed with cni.exclusive=false" } else { "" };
    let reasons: Vec<&str> = plan.steps.iter().map(|step| step.reason.as_str()).collect();
    format!("another program keeps changing {path} ({}){remedy}", reasons.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::plan::Operation;

    fn plan(reason: Reason) -> Plan {
        let operation = Operation::Remove { path: "/net.d/05-cilium.conflist".into(), over: None };
        Plan {
            steps: vec![Step { operation, reason }],
            network: Some("/net.d/05-cilium.conflist".into()),
            ..Plan::default()
        }
    }

    #[test]
    fn a_new_token_leaves_readiness_alone_and_a_lost_entry_does_not() {
        assert_eq!(status(&plan(Reason::KubeconfigDiffers), &Status::Ready), Status::Ready);
        assert_eq!(status(&plan(Reason::KubeconfigDiffers), &Status::Starting), Status::Starting);
        let lost = status(&plan(Reason::EntryMissing), &Status::Ready);
        assert_eq!(lost, Status::NotReady(vec!["entry_missing: remove /net.d/05-cilium.conflist".to_owned()]));
        assert_eq!(status(&Plan::default(), &lost), Status::Ready);
    }

    #[test]
    fn a_fight_with_cilium_names_the_remedy() {
        let text = fight(&plan(Reason::EntryMissing));
        assert!(text.contains("05-cilium.conflist (entry_missing)") && text.contains("cni.exclusive=false"), "{text}");
        let other = fight(&Plan { network: Some("/net.d/10-x.conflist".into()), ..plan(Reason::EntryMissing) });
        assert!(!other.contains("exclusive"), "{other}");
    }
}
