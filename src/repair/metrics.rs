//! Metrics of repair, with Istio's names.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::decide::Reason;

/// The metrics of one controller; clones share the values.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    repaired: Family<Labels, Counter>,
    left: Family<Left, Counter>,
    broken: Gauge,
    watch_errors: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
#[cfg_attr(test, derive(Default))]
struct Labels {
    /// `evict`, `delete`, `label`, `repair`, `report`
    r#type: &'static str,
    /// `success`, `skip`, `fail`
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
#[cfg_attr(test, derive(Default))]
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
        watchdog.register("actions", "Pods without a sidecar that were told or deleted", metrics.repaired.clone());
        watchdog.register("pods_without_sidecar", "Pods that lack the sidecar now", metrics.broken.clone());
        watchdog.register("watch_errors", "Errors of the list and watch of pods", metrics.watch_errors.clone());
        metrics
    }

    pub(super) fn acted(&self, r#type: &'static str, result: ActionResult) {
        let result = match result {
            ActionResult::Success => "success",
            ActionResult::Skip => "skip",
            ActionResult::Fail => "fail",
        };
        self.repaired.get_or_create(&Labels { r#type, result }).inc();
    }

    pub(super) fn left(&self, reason: Reason) {
        self.left.get_or_create(&Left { reason: reason.as_str() }).inc();
    }

    pub(super) fn known(&self, broken: usize) {
        self.broken.set(i64::try_from(broken).unwrap_or(i64::MAX));
    }

    pub(super) fn watch_failed(&self) {
        self.watch_errors.inc();
    }

    /// Creates a series of each family, without which the registry does not name its labels.
    #[cfg(test)]
    pub(crate) fn create_series(&self) {
        drop(self.repaired.get_or_create(&Default::default()));
        drop(self.left.get_or_create(&Default::default()));
    }
}
