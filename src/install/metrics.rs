//! The installer's metrics, with Istio's names, and its latest activity for reports.

#![expect(clippy::disallowed_methods, reason = "records when the node was repaired")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serve::recent::Recent;

use super::operation::Operation;
use super::plan::Reason;

/// The number of heals that are kept for reports.
const HEALS: usize = 20;

/// The metrics of one installer; clones share the counters.
#[derive(Debug, Clone)]
pub struct Metrics {
    installs: Family<Installed, Counter>,
    ready: Gauge,
    watched: Gauge,
    heals: Family<Healed, Counter>,
    latest_heals: Recent<Heal>,
    chain: Arc<Mutex<Option<PathBuf>>>,
    warnings: Arc<Mutex<Vec<String>>>,
}

/// A correction of another program's change of the installation, made after the node was ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heal {
    pub time: Timestamp,
    /// The `reason` label.
    pub reason: &'static str,
    /// The file operation.
    pub change: String,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            installs: Family::default(),
            ready: Gauge::default(),
            watched: Gauge::default(),
            heals: Family::default(),
            latest_heals: Recent::new(HEALS),
            chain: Arc::default(),
            warnings: Arc::default(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Installed {
    /// `INSTALLER_PANIC`, or Istio's `SUCCESS`, `COPY_BINARIES_FAILURE`, `CREATE_KUBECONFIG_FAILURE`, `CREATE_CNI_CONFIG_FAILURE`
    result: &'static str,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Healed {
    reason: &'static str,
}

impl Metrics {
    /// Registers `istio_cni_installs_total{result}`, `istio_cni_install_ready`, `istio_cni_install_watched` and
    /// `istio_cni_self_heals_total{reason}`.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let of_cni = registry.sub_registry_with_prefix("istio_cni");
        of_cni.register("installs", "Installations of the plugin, by result", metrics.installs.clone());
        of_cni.register("install_ready", "Whether the installation on the node is complete", metrics.ready.clone());
        of_cni.register(
            "install_watched",
            "Whether inotify reports changes of the node's directories; otherwise they are checked each second",
            metrics.watched.clone(),
        );
        of_cni.register("self_heals", "Repairs after the node was ready, by reason", metrics.heals.clone());
        metrics
    }

    pub(super) fn installed(&self) {
        self.installs.get_or_create(&Installed { result: "SUCCESS" }).inc();
    }

    pub(super) fn failed(&self, operation: &Operation) {
        let result = match operation {
            Operation::Copy { .. } => "COPY_BINARIES_FAILURE",
            Operation::Write { path, .. } if path.ends_with(contract::KUBECONFIG) => "CREATE_KUBECONFIG_FAILURE",
            Operation::Write { .. } | Operation::Remove { .. } => "CREATE_CNI_CONFIG_FAILURE",
        };
        self.installs.get_or_create(&Installed { result }).inc();
    }

    pub(super) fn panicked(&self) {
        self.installs.get_or_create(&Installed { result: "INSTALLER_PANIC" }).inc();
    }

    pub(super) fn ready(&self, ready: bool) {
        self.ready.set(ready.into());
    }

    pub(super) fn watched(&self, watched: bool) {
        self.watched.set(watched.into());
    }

    /// Counts a correction. `change`: the file operation, with the paths of the node.
    pub(super) fn healed(&self, reason: Reason, change: &str) {
        let is_routine = reason.is_routine();
        let reason = reason.as_str();
        self.heals.get_or_create(&Healed { reason }).inc();
        if !is_routine {
            self.latest_heals.push(Heal { time: Timestamp::now(), reason, change: change.to_owned() });
        }
    }

    /// Records the file that contains the chain entry.
    pub(super) fn chained(&self, path: Option<PathBuf>) {
        *self.chain.lock().unwrap_or_else(PoisonError::into_inner) = path;
    }

    /// Records the problems that do not prevent readiness, with the paths of the node.
    pub(super) fn warned(&self, warnings: Vec<String>) {
        *self.warnings.lock().unwrap_or_else(PoisonError::into_inner) = warnings;
    }

    /// Returns the latest corrections of what another program changed, the latest one first.
    pub fn heals(&self) -> &Recent<Heal> {
        &self.latest_heals
    }

    /// Returns the file that contained the chain entry after the last pass.
    pub fn chain(&self) -> Option<PathBuf> {
        self.chain.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the problems that the last pass found and that do not prevent readiness.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Creates one series of each metric family: the encoded registry names the labels of a family only in its series.
    pub fn create_series(&self) {
        drop(self.installs.get_or_create(&Default::default()));
        drop(self.heals.get_or_create(&Default::default()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_token_is_no_correction() {
        let metrics = Metrics::default();
        for reason in [Reason::KubeconfigDiffers, Reason::Recorded, Reason::Stale, Reason::EntryMissing] {
            metrics.healed(reason, "remove /x");
        }
        let latest: Vec<_> = metrics.heals().latest_first().into_iter().map(|heal| heal.reason).collect();
        assert_eq!((latest, metrics.heals().total()), (vec!["entry_missing"], 1));
    }
}
