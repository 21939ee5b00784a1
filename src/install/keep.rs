//! Keeps the node as it should be, for as long as the daemon lives.
//!
//! `daemon` runs it as a task, whose work is done by one thread: it looks, plans, carries out, and looks again until
//! nothing is left to do. While another writer's chain lacks the plugin, pods pass the proxy by, and on a busy node each
//! step that another thread has to be woken for waits for a processor. It leaves everything in place when it ends.
#![expect(clippy::disallowed_methods, reason = "owns the installer's clock")]

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::sync::watch::Sender;
use tokio::time::timeout;

use super::files::{self, Files};
use super::plan::{self, Plan};
use super::server::Resolver;
use super::settings::Settings;
use super::snapshot::{Compared, Snapshot};
use super::throttle::Throttle;
use super::{Metrics, Status};
use crate::contract;
use crate::serve::shutdown::Shutdown;
use crate::serve::watch::Watch;

/// Between two looks on a node where everything is in its place.
const SAFETY_NET: Duration = Duration::from_secs(30);
/// Between two looks on one where something is missing.
const IMPATIENT: Duration = Duration::from_secs(1);

/// Installs and mends until the end is wished; `status` tells how far the node is.
pub async fn keep(settings: Arc<Settings>, metrics: Metrics, status: Sender<Status>, shutdown: Shutdown) {
    let resolver = Resolver::follow(&settings.kubeconfig.server, shutdown.clone());
    while !shutdown.is_wished() {
        let mut keeper = Keeper::new(Arc::clone(&settings), resolver.clone(), metrics.clone(), status.clone());
        let end = shutdown.clone();
        let trouble = match tokio::task::spawn_blocking(move || keeper.live(&end)).await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => format!("installing cannot begin: {error}"),
            // Its own panic is told by the process's hook.
            Err(_) => "installing has failed; the log says how".to_owned(),
        };
        status.send_replace(Status::NotReady(vec![trouble]));
        metrics.ready(false);
        let _ = timeout(IMPATIENT, shutdown.wished()).await;
    }
}

struct Keeper {
    settings: Arc<Settings>,
    resolver: Resolver,
    metrics: Metrics,
    status: Sender<Status>,
    throttle: Throttle,
    compared: Compared,
    /// The plan of the last look: what it says is logged when it is new.
    last: Plan,
    was_ready: bool,
    /// Something was changed: another look tells whether that was all.
    more: bool,
}

impl Keeper {
    fn new(settings: Arc<Settings>, resolver: Resolver, metrics: Metrics, status: Sender<Status>) -> Self {
        let throttle = Throttle::new(Instant::now());
        let (compared, last) = (Compared::default(), Plan::default());
        Self { settings, resolver, metrics, status, throttle, compared, last, was_ready: false, more: false }
    }

    /// Until the end is wished. The thread has a runtime of its own, so that the kernel wakes the one who mends, and nobody else.
    fn live(&mut self, end: &Shutdown) -> io::Result<()> {
        Builder::new_current_thread().enable_all().build()?.block_on(self.mend(end));
        Ok(())
    }

    async fn mend(&mut self, end: &Shutdown) {
        let Settings { net_dir, bin_dir, account_dir, run_dir, .. } = &*self.settings;
        // The plugin writes a line for each pod that starts.
        let directories = [net_dir, bin_dir, account_dir, run_dir].map(Clone::clone);
        let mut watch = Watch::new(directories).except(contract::LOG_FILE);
        while !end.is_wished() {
            watch.renew();
            let complete = self.visit();
            if self.more {
                let wait = self.throttle.take(Instant::now());
                if self.throttle.is_fight() {
                    tracing::warn!("{}", fight(&self.last));
                }
                let _ = timeout(wait, end.wished()).await;
            } else {
                tokio::select! {
                    () = watch.changed(if complete { SAFETY_NET } else { IMPATIENT }) => {}
                    () = self.resolver.changed() => {}
                    () = end.wished() => {}
                }
            }
        }
    }

    /// One look and what follows from it; whether nothing was missing. Nothing is logged before it is done.
    fn visit(&mut self) -> bool {
        let plan = plan::install(
            &self.settings,
            &Snapshot::again(&self.settings, self.resolver.located(), &mut self.compared),
        );
        let before = self.status.borrow().clone();
        // A node that is not ready yet hears of what is about to be done when it has failed.
        let news = (before == Status::Ready || plan.steps.is_empty()).then(|| status(&plan, &before));
        let news = news.filter(|status| self.publish(status));
        let (done, failure) = self.carry_out(&plan);
        news.iter().for_each(say);
        self.tell(&plan, done);
        if let Some(failure) = &failure {
            let obstacles = plan.obstacles.iter().map(ToString::to_string);
            let status = Status::NotReady(obstacles.chain([failure.to_string()]).collect());
            if self.publish(&status) {
                say(&status);
            }
        }
        self.more = !plan.steps.is_empty() && failure.is_none();
        self.last = plan;
        self.last.is_empty()
    }

    /// Carries out what is planned up to the first failure: what follows stands on what went before. How many steps are
    /// done, and the failure.
    fn carry_out(&self, plan: &Plan) -> (usize, Option<files::Error>) {
        let files = Files::new();
        for (done, step) in plan.steps.iter().enumerate() {
            if let Err(error) = files.perform(&step.operation) {
                self.metrics.failed(&step.operation);
                return (done, Some(error));
            }
            if self.was_ready {
                self.metrics.healed(step.reason);
            }
        }
        (plan.steps.len(), None)
    }

    fn tell(&self, plan: &Plan, done: usize) {
        for step in plan.steps.iter().take(done) {
            tracing::info!(reason = step.reason.as_str(), "{:?}", step.operation);
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

fn say(status: &Status) {
    match status {
        Status::Ready => tracing::info!("the node is ready"),
        Status::NotReady(missing) => tracing::warn!("the node is not ready: {}", missing.join("; ")),
        Status::Starting => {}
    }
}

/// What a plan means for readiness. One that could start no pod wrongly leaves it as it was.
fn status(plan: &Plan, before: &Status) -> Status {
    if plan.is_empty() {
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
    use crate::install::plan::{Operation, Reason, Step};

    fn plan(reason: Reason) -> Plan {
        let operation = Operation::Remove { path: "/net.d/05-cilium.conflist".into() };
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
