//! Metrics of repair, with Istio's names, and its latest actions for reports.

#![expect(clippy::disallowed_methods, reason = "records when an action ended")]

use jiff::Timestamp;
use podfacts::PodName;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serve::recent::Recent;

use super::decide::Reason;

/// The number of actions that are kept for reports.
const ACTIONS: usize = 20;

/// The metrics of one controller; clones share the values.
#[derive(Debug, Clone)]
pub struct Metrics {
    repaired: Family<Labels, Counter>,
    left: Family<Left, Counter>,
    broken: Gauge,
    watch_errors: Counter,
    latest: Recent<RepairAction>,
}

/// One of the latest actions, or a pod that was given up, for reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairAction {
    pub time: Timestamp,
    pub pod: PodName,
    /// The `type` label of the action; `none` for a pod that was given up.
    pub action: &'static str,
    /// The `result` label, or the reason for giving up.
    pub result: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            repaired: Family::default(),
            left: Family::default(),
            broken: Gauge::default(),
            watch_errors: Counter::default(),
            latest: Recent::new(ACTIONS),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    /// `evict`, `delete`, `label`, `repair`, `report`
    r#type: &'static str,
    /// `success`, `skip`, `fail`
    result: &'static str,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Left {
    reason: &'static str,
}

/// The `result` label of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ActionResult {
    Success,
    Skip,
    Fail,
}

impl Metrics {
    /// Registers Istio's `istio_cni_repair_pods_repaired_total{type,result}` and this project's own metrics.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let repair = registry.sub_registry_with_prefix("istio_cni_repair");
        repair.register("pods_repaired", "Pods on which repair acted", metrics.repaired.clone());
        repair.register("pods_left", "Broken pods that repair has given up, for now or for good", metrics.left.clone());
        repair.register("broken_pods", "Pods known to be broken now", metrics.broken.clone());
        repair.register("watch_errors", "Errors of the list and watch of pods", metrics.watch_errors.clone());
        metrics
    }

    /// Registers the metrics of Dapr's watchdog, such as `dapr_watchdog_actions_total{type,result}`.
    pub fn of_dapr_watchdog(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let watchdog = registry.sub_registry_with_prefix("dapr_watchdog");
        watchdog.register("actions", "Pods without a sidecar that were reported or deleted", metrics.repaired.clone());
        watchdog.register("pods_without_sidecar", "Pods that lack the sidecar now", metrics.broken.clone());
        watchdog.register("watch_errors", "Errors of the list and watch of pods", metrics.watch_errors.clone());
        metrics
    }

    pub(super) fn acted(&self, pod: &PodName, r#type: &'static str, result: ActionResult) {
        let result = match result {
            ActionResult::Success => "success",
            ActionResult::Skip => "skip",
            ActionResult::Fail => "fail",
        };
        self.repaired.get_or_create(&Labels { r#type, result }).inc();
        self.record(pod, r#type, result);
    }

    pub(super) fn left(&self, pod: &PodName, reason: Reason) {
        self.left.get_or_create(&Left { reason: reason.as_str() }).inc();
        self.record(pod, "none", reason.as_str());
    }

    fn record(&self, pod: &PodName, action: &'static str, result: &'static str) {
        self.latest.push(RepairAction { time: Timestamp::now(), pod: pod.clone(), action, result });
    }

    /// Returns the latest actions, the newest first.
    pub fn actions(&self) -> &Recent<RepairAction> {
        &self.latest
    }

    /// Returns the number of pods that are known to be broken now.
    pub fn broken(&self) -> u64 {
        u64::try_from(self.broken.get()).unwrap_or_default()
    }

    pub(super) fn known(&self, broken: usize) {
        self.broken.set(i64::try_from(broken).unwrap_or(i64::MAX));
    }

    pub(super) fn watch_failed(&self) {
        self.watch_errors.inc();
    }

    /// Creates one series in each metric family with labels, because the encoded registry shows a family's labels only in series.
    pub fn create_series(&self) {
        drop(self.repaired.get_or_create(&Default::default()));
        drop(self.left.get_or_create(&Default::default()));
    }
}
