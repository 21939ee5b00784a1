//! The installer's control loop: reads the node, plans, applies the plan, and repeats until the plan is empty.
//!
//! `daemon` runs it as a task, which does all its work on one thread: pods start without redirection while a chain that
//! another program has changed lacks the plugin, and each hand-over to another thread would wait for a processor on a
//! busy node. The loop leaves the installation in place when it ends.
#![expect(clippy::disallowed_methods, reason = "owns the installer's clock")]

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serve::health::Liveness;
use serve::shutdown::Shutdown;
use serve::tasks::panic_if_requested;
use serve::watch::Watch;
use tokio::runtime::Builder;
use tokio::sync::watch::Sender;
use tokio::time::timeout;

use super::files::{self, Files};
use super::metrics::Metrics;
use super::plan::{Plan, Reason, Step};
use super::settings::{Given, InstallSettings};
use super::snapshot::CompareCache;
use super::sources::Sources;
use super::status::Status;
use super::temporary;
use super::throttle::Throttle;

/// The interval between two passes if a part of the installation is missing.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The time limit of a pass, for the liveness probe. A pass takes milliseconds; a thread that exceeds the limit hangs
/// in the node's file system.
const PASS_LIMIT: Duration = Duration::from_secs(15);
/// The name under which the installer's thread reports to the liveness probe.
const THREAD: &str = "installer";

/// Installs the plugin and corrects deviations until shutdown is requested; reports the progress to `status`.
pub async fn run(
    settings: Arc<InstallSettings>,
    sources: Sources,
    metrics: Metrics,
    status: Sender<Status>,
    liveness: Liveness,
    shutdown: Shutdown,
) {
    while !shutdown.is_requested() {
        let (sources, liveness) = (sources.clone(), liveness.clone());
        let mut reconciler = Reconciler::new(Arc::clone(&settings), sources, metrics.clone(), status.clone(), liveness);
        let end = shutdown.clone();
        let failure = match tokio::task::spawn_blocking(move || {
            panic_if_requested(THREAD);
            reconciler.run(&end)
        })
        .await
        {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => format!("the installer cannot start: {error}"),
            // The panic hook logs the panic.
            Err(_) => {
                metrics.panicked();
                "the installer has failed; see the log".to_owned()
            }
        };
        metrics.ready(false);
        status.send_replace(Status::NotReady(vec![failure]));
        let _ = timeout(RETRY_INTERVAL, shutdown.requested()).await;
    }
    liveness.ended(THREAD);
}

/// Returns the obstacles to an installation on the node in its current state. Changes nothing.
pub fn obstacles(settings: &InstallSettings, sources: &Sources, liveness: &Liveness) -> Vec<String> {
    let plan = sources.plan(settings, &mut CompareCache::default(), liveness);
    texts(&plan.obstacles, &settings.given).collect()
}

struct Reconciler {
    settings: Arc<InstallSettings>,
    sources: Sources,
    metrics: Metrics,
    status: Sender<Status>,
    liveness: Liveness,
    throttle: Throttle,
    compared: CompareCache,
    /// The plan of the last pass: only obstacles and warnings that it did not contain are logged.
    last: Plan,
    was_ready: bool,
    /// Whether the last pass changed files, so that another pass must confirm the result.
    has_changed: bool,
}

impl Reconciler {
    fn new(
        settings: Arc<InstallSettings>,
        sources: Sources,
        metrics: Metrics,
        status: Sender<Status>,
        liveness: Liveness,
    ) -> Self {
        let throttle = Throttle::new(Instant::now());
        let (compared, last) = (CompareCache::default(), Plan::default());
        let (was_ready, has_changed) = (false, false);
        Self { settings, sources, metrics, status, liveness, throttle, compared, last, was_ready, has_changed }
    }

    /// Blocks until shutdown is requested. The thread has its own runtime, so that an event wakes this thread directly.
    fn run(&mut self, shutdown: &Shutdown) -> io::Result<()> {
        Builder::new_current_thread().enable_all().build()?.block_on(self.watch(shutdown));
        Ok(())
    }

    async fn watch(&mut self, shutdown: &Shutdown) {
        // The liveness probe also limits this first access to the node's file systems, which may hang.
        self.liveness.alive(THREAD, PASS_LIMIT);
        files::sync_directories(&self.settings);
        let InstallSettings { net_dir, bin_dir, account_dir, run_dir, .. } = &*self.settings;
        let directories = [net_dir, bin_dir, account_dir, run_dir].map(Clone::clone);
        let mut watch = Watch::new(directories).except(is_irrelevant);
        while !shutdown.is_requested() {
            self.liveness.alive(THREAD, PASS_LIMIT);
            watch.renew();
            self.metrics.watched(watch.is_complete());
            let is_complete = self.reconcile();
            self.liveness.alive(THREAD, self.settings.resync + PASS_LIMIT);
            if self.has_changed {
                let wait = self.throttle.take(Instant::now());
                if self.throttle.is_contended() {
                    tracing::warn!("{}", self.settings.given.on_node(&contention_warning(&self.last)));
                }
                let _ = timeout(wait, shutdown.requested()).await;
            } else {
                let (sources, last) = (self.sources.clone(), self.last.of_directories());
                tokio::select! {
                    () = sources.directories_changed(&last) => {}
                    () = watch.changed(if is_complete { self.settings.resync } else { RETRY_INTERVAL }) => {}
                    () = self.sources.resolver.changed() => {}
                    () = self.sources.identity.changed() => {}
                    () = shutdown.requested() => {}
                }
            }
        }
    }

    /// Makes one pass and returns whether the installation was complete before it. Logs after the changes, not between them.
    fn reconcile(&mut self) -> bool {
        let plan = self.sources.plan(&self.settings, &mut self.compared, &self.liveness);
        let before = self.status.borrow().clone();
        // A node that is not ready yet reports planned steps only if they fail.
        let is_idle = plan.steps.iter().all(|step| step.reason == Reason::Stale);
        let status = (before == Status::Ready || is_idle).then(|| status_of(&plan, &before, &self.settings.given));
        let published = status.filter(|status| self.publish(status));
        let applied = self.apply(&plan);
        published.iter().for_each(log_status);
        self.log(&plan, &applied);
        let given = &self.settings.given;
        let failures: Vec<String> = texts(applied.failures(), given).collect();
        if !failures.is_empty() {
            let status = Status::NotReady(texts(&plan.obstacles, given).chain(failures).collect());
            if self.publish(&status) {
                log_status(&status);
            }
        }
        self.has_changed = !applied.done.is_empty() && applied.failed.is_empty();
        self.metrics.chained(plan.network.as_deref().map(|path| self.settings.given.path_on_node(path)));
        self.metrics.warned(texts(&plan.warnings, &self.settings.given).collect());
        self.last = plan;
        is_complete(&self.last)
    }

    /// Applies a plan. After the failure of a step that is required by a chain ([`is_required_by_chain`]), the later
    /// edits of chains are skipped. All other steps are applied regardless of failures.
    fn apply<'p>(&self, plan: &'p Plan) -> Applied<'p> {
        let (files, mut applied) = (Files::new(), Applied::default());
        let mut skips_chains = false;
        for step in &plan.steps {
            if skips_chains && edits_chain(step.reason) {
                continue;
            }
            match files.apply(&step.operation) {
                Ok(()) => {
                    applied.done.push(step);
                    if self.was_ready {
                        let change = format!("{:?}", step.operation);
                        self.metrics.healed(step.reason, &self.settings.given.on_node(&change));
                    }
                }
                Err(error) => {
                    self.metrics.failed(&step.operation);
                    skips_chains |= is_required_by_chain(step.reason, self.was_ready || plan.was_installed);
                    applied.failed.push((step, error));
                }
            }
        }
        applied
    }

    /// Logs the steps, and obstacles and warnings that the last plan did not contain.
    fn log(&self, plan: &Plan, applied: &Applied<'_>) {
        let given = &self.settings.given;
        for step in &applied.done {
            let change = format!("{:?}", step.operation);
            tracing::info!(reason = step.reason.as_str(), "{}", given.on_node(&change));
        }
        for (step, error) in applied.failed.iter().filter(|(step, _)| step.reason == Reason::Stale) {
            if !self.last.steps.contains(step) {
                let error = error.to_string();
                tracing::warn!(error = %given.on_node(&error), "a temporary file cannot be removed");
            }
        }
        let obstacles = plan.obstacles.iter().filter(|obstacle| !self.last.obstacles.contains(obstacle));
        texts(obstacles, given).for_each(|obstacle| tracing::warn!("waiting: {obstacle}"));
        let warnings = plan.warnings.iter().filter(|warning| !self.last.warnings.contains(warning));
        texts(warnings, given).for_each(|warning| tracing::warn!("{warning}"));
    }

    /// Reports a status if it differs from the last one; returns whether it does.
    fn publish(&mut self, status: &Status) -> bool {
        if *self.status.borrow() == *status {
            return false;
        }
        let ready = *status == Status::Ready;
        self.metrics.ready(ready);
        if ready {
            self.metrics.installed();
            self.was_ready = true;
        }
        // The metrics are updated first, so that they are current for each task that waits for the status.
        self.status.send_replace(status.clone());
        true
    }
}

/// The results of a plan's steps; those in neither list were skipped after a failure.
#[derive(Default)]
struct Applied<'p> {
    done: Vec<&'p Step>,
    failed: Vec<(&'p Step, files::Error)>,
}

impl Applied<'_> {
    /// Returns the failures that make the node unready; a stale temporary file affects no pod.
    fn failures(&self) -> impl Iterator<Item = &files::Error> {
        self.failed.iter().filter(|(step, _)| step.reason != Reason::Stale).map(|(_, error)| error)
    }
}

/// Whether a plan has no obstacle, and no step other than the removal of stale temporary files.
fn is_complete(plan: &Plan) -> bool {
    plan.obstacles.is_empty() && plan.steps.iter().all(|step| step.reason == Reason::Stale)
}

/// Whether a step edits network configurations or their records. These steps are applied in their order; after the
/// failure of a step that is required by a chain ([`is_required_by_chain`]), the later ones are skipped.
fn edits_chain(reason: Reason) -> bool {
    use Reason::{BinaryDiffers, BinaryMissing, KubeconfigDiffers, KubeconfigMissing, Stale};
    !matches!(reason, Stale | BinaryMissing | BinaryDiffers | KubeconfigMissing | KubeconfigDiffers)
}

/// Whether no chain may be edited after a step for this reason has failed. An older plugin and an older token still
/// work, so their failed updates prevent no edit. On a node where the plugin was installed before, a missing kubeconfig
/// or record prevents no edit either: a chain without the plugin would start pods without redirection, whereas a plugin
/// without a kubeconfig, as after a reboot, queries the agent, and a later pass writes the record.
fn is_required_by_chain(reason: Reason, was_installed: bool) -> bool {
    match reason {
        Reason::Stale | Reason::BinaryDiffers | Reason::KubeconfigDiffers => false,
        Reason::KubeconfigMissing | Reason::Recorded => !was_installed,
        _ => true,
    }
}

/// Whether events of a file are ignored: those of the plugin's log, which grows with each pod, and of temporary files. The
/// temporary files of the installer's own failed writes would otherwise cause the next pass at once.
fn is_irrelevant(name: &OsStr) -> bool {
    name == contract::LOG_FILE || temporary::is_temporary(name)
}

fn log_status(status: &Status) {
    match status {
        Status::Ready => tracing::info!("the node is ready"),
        Status::NotReady(missing) => tracing::warn!("the node is not ready: {}", missing.join("; ")),
        Status::Starting => {}
    }
}

/// Returns the status that follows from a plan. A plan that affects no pod leaves the status as it was.
fn status_of(plan: &Plan, before: &Status, given: &Given) -> Status {
    if is_complete(plan) {
        return Status::Ready;
    }
    if !plan.affects_pods() {
        return before.clone();
    }
    let steps = plan.steps.iter().map(|step| format!("{}: {:?}", step.reason.as_str(), step.operation));
    Status::NotReady(texts(&plan.obstacles, given).chain(texts(steps, given)).collect())
}

/// Returns the items as strings, with the node's paths.
fn texts<T: ToString>(items: impl IntoIterator<Item = T>, given: &Given) -> impl Iterator<Item = String> {
    items.into_iter().map(|item| given.on_node(&item.to_string()).into_owned())
}

/// Returns the warning that another program repeatedly changes the same files, with the remedy if the program is known.
fn contention_warning(plan: &Plan) -> String {
    let change = |step: &Step| format!("{} ({})", step.operation.path().display(), step.reason.as_str());
    let changes: Vec<String> = plan.steps.iter().filter(|step| !step.reason.is_routine()).map(change).collect();
    let changes = if changes.is_empty() { plan.steps.iter().map(change).collect() } else { changes }.join(", ");
    let is_of_cilium = plan.is_renamed_by_cilium || changes.contains("cilium");
    let remedy = if is_of_cilium { "; Cilium does so unless it is installed with cni.exclusive=false" } else { "" };
    format!("another program keeps changing {changes}{remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::operation::Operation;

    fn plan(reason: Reason) -> Plan {
        plan_for("/net.d/05-cilium.conflist", reason)
    }

    /// Returns a plan that changes this file, on a node whose chain is in Cilium's file.
    fn plan_for(path: &str, reason: Reason) -> Plan {
        let operation = Operation::Remove { path: path.into(), expected: None, replaced_by: None };
        Plan {
            steps: vec![Step { operation, reason }],
            network: Some("/net.d/05-cilium.conflist".into()),
            ..Plan::default()
        }
    }

    #[test]
    fn a_new_token_does_not_change_readiness_and_a_missing_entry_does() {
        assert_eq!(status_of(&plan(Reason::KubeconfigDiffers), &Status::Ready, &Given::default()), Status::Ready);
        assert_eq!(status_of(&plan(Reason::KubeconfigDiffers), &Status::Starting, &Given::default()), Status::Starting);
        let missing = status_of(&plan(Reason::EntryMissing), &Status::Ready, &Given::default());
        assert_eq!(missing, Status::NotReady(vec!["entry_missing: remove /net.d/05-cilium.conflist".to_owned()]));
        assert_eq!(status_of(&Plan::default(), &missing, &Given::default()), Status::Ready);
    }

    #[test]
    fn the_warning_about_cilium_names_the_setting() {
        let text = contention_warning(&plan(Reason::EntryMissing));
        assert!(text.contains("05-cilium.conflist (entry_missing)") && text.contains("cni.exclusive=false"), "{text}");
        let own = plan_for("/net.d/02-istio-cni.conflist", Reason::EntryMissing);
        assert!(!contention_warning(&own).contains("exclusive"), "{own:?}");
        let text = contention_warning(&Plan { is_renamed_by_cilium: true, ..own });
        assert!(
            text.contains("02-istio-cni.conflist (entry_missing)") && text.contains("cni.exclusive=false"),
            "{text}"
        );
    }

    #[test]
    fn the_warning_about_another_writer_names_the_files_that_it_changes() {
        let mut fought = plan_for("/bin/istio-cni", Reason::BinaryDiffers);
        fought.steps.extend(plan_for("/run/istio-cni-kubeconfig", Reason::KubeconfigDiffers).steps);
        assert_eq!(contention_warning(&fought), "another program keeps changing /bin/istio-cni (binary_differs)");
        fought.steps.remove(0);
        let only = "another program keeps changing /run/istio-cni-kubeconfig (kubeconfig_differs)";
        assert_eq!(contention_warning(&fought), only);
    }
}
