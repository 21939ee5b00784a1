//! Keeps the node as it should be, for as long as the daemon lives.
//!
//! `daemon` runs it as a task of its own. It looks, plans, carries out, and looks again until nothing is left to do. It
//! leaves everything in place when it ends.
#![expect(clippy::disallowed_methods, reason = "owns the installer's clock")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch::Sender;

use super::files::Files;
use super::plan::{self, Plan};
use super::settings::Settings;
use super::snapshot::Snapshot;
use super::throttle::Throttle;
use super::{Metrics, Status};
use crate::serve::shutdown::Shutdown;
use crate::serve::watch::Watch;

/// Between two looks on a node where everything is in its place.
const SAFETY_NET: Duration = Duration::from_secs(30);
/// Between two looks on one where something is missing.
const IMPATIENT: Duration = Duration::from_secs(1);

/// Installs and mends until the end is wished; `status` tells how far the node is.
pub async fn keep(settings: Arc<Settings>, metrics: Metrics, status: Sender<Status>, shutdown: Shutdown) {
    let mut keeper = Keeper::new(settings, metrics, status);
    while !shutdown.is_wished() {
        let complete = keeper.visit().await;
        if keeper.more {
            let wait = keeper.throttle.take(Instant::now());
            if keeper.throttle.is_fight() {
                tracing::warn!("{}", fight(&keeper.last));
            }
            let _ = tokio::time::timeout(wait, shutdown.wished()).await;
        } else {
            tokio::select! {
                () = keeper.watch.changed(if complete { SAFETY_NET } else { IMPATIENT }) => {}
                () = shutdown.wished() => {}
            }
        }
    }
}

struct Keeper {
    settings: Arc<Settings>,
    metrics: Metrics,
    status: Sender<Status>,
    watch: Watch,
    throttle: Throttle,
    /// The plan of the last look: what it says is logged when it is new.
    last: Plan,
    was_ready: bool,
    /// Something was changed: another look tells whether that was all.
    more: bool,
}

impl Keeper {
    fn new(settings: Arc<Settings>, metrics: Metrics, status: Sender<Status>) -> Self {
        let directories = [&settings.net_dir, &settings.bin_dir, &settings.account_dir, &settings.run_dir];
        let watch = Watch::new(directories.map(Clone::clone));
        let throttle = Throttle::new(Instant::now());
        Self { settings, metrics, status, watch, throttle, last: Plan::default(), was_ready: false, more: false }
    }

    /// One look and what follows from it; whether nothing was missing.
    async fn visit(&mut self) -> bool {
        self.watch.renew();
        let settings = Arc::clone(&self.settings);
        // A panic of the look is one of this task.
        let Ok(plan) = tokio::task::spawn_blocking(move || plan::install(&settings, &Snapshot::take(&settings))).await
        else {
            self.publish(Status::NotReady(vec!["looking at the node has failed; the log says how".to_owned()]));
            return false;
        };
        self.tell(&plan);
        let before = self.status.borrow().clone();
        // A node that is not ready yet hears of what is about to be done when it has failed.
        if before == Status::Ready || plan.steps.is_empty() {
            self.publish(status(&plan, &before));
        }
        let (plan, failure) = self.carry_out(plan).await;
        let failed = failure.is_some();
        if let Some(failure) = failure {
            let obstacles = plan.obstacles.iter().map(ToString::to_string);
            self.publish(Status::NotReady(obstacles.chain([failure]).collect()));
        }
        self.more = !plan.steps.is_empty() && !failed;
        self.last = plan;
        self.last.is_empty()
    }

    /// Carries out what is planned up to the first failure: what follows stands on what went before.
    async fn carry_out(&self, plan: Plan) -> (Plan, Option<String>) {
        let (metrics, healing) = (self.metrics.clone(), self.was_ready);
        let steps = plan.steps.clone();
        let done = tokio::task::spawn_blocking(move || {
            let files = Files::new();
            for step in &steps {
                files.perform(&step.operation).inspect_err(|_| metrics.failed(&step.operation))?;
                tracing::info!(reason = step.reason.as_str(), "{:?}", step.operation);
                if healing {
                    metrics.healed(step.reason);
                }
            }
            Ok::<(), super::files::Error>(())
        });
        let failure = match done.await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(panicked) => Some(format!("a change of the node has failed: {panicked}")),
        };
        (plan, failure)
    }

    fn tell(&self, plan: &Plan) {
        for obstacle in plan.obstacles.iter().filter(|obstacle| !self.last.obstacles.contains(obstacle)) {
            tracing::warn!("waiting: {obstacle}");
        }
        for remark in plan.remarks.iter().filter(|remark| !self.last.remarks.contains(remark)) {
            tracing::warn!("{remark}");
        }
    }

    fn publish(&mut self, status: Status) {
        let ready = status == Status::Ready;
        if *self.status.borrow() == status {
            return;
        }
        self.status.send_replace(status.clone());
        self.metrics.ready(ready);
        match status {
            Status::Ready => {
                self.metrics.installed();
                self.was_ready = true;
                tracing::info!("the node is ready");
            }
            Status::NotReady(missing) => tracing::warn!("the node is not ready: {}", missing.join("; ")),
            Status::Starting => {}
        }
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
