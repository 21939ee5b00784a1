//! The installer's metrics, with Istio's names.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::plan::{Operation, Reason};
use crate::contract;

/// The metrics of one installer; clones share the counters.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    installs: Family<Installed, Counter>,
    ready: Gauge,
    watched: Gauge,
    heals: Family<Healed, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
#[cfg_attr(test, derive(Default))]
struct Installed {
    /// Istio's `SUCCESS`, `COPY_BINARIES_FAILURE`, `CREATE_KUBECONFIG_FAILURE`, `CREATE_CNI_CONFIG_FAILURE`
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
#[cfg_attr(test, derive(Default))]
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

    pub(super) fn ready(&self, ready: bool) {
        self.ready.set(ready.into());
    }

    pub(super) fn watched(&self, watched: bool) {
        self.watched.set(watched.into());
    }

    pub(super) fn healed(&self, reason: Reason) {
        self.heals.get_or_create(&Healed { reason: reason.as_str() }).inc();
    }

    /// Creates a series of each family, without which the registry does not name its labels.
    #[cfg(test)]
    pub(crate) fn create_series(&self) {
        drop(self.installs.get_or_create(&Default::default()));
        drop(self.heals.get_or_create(&Default::default()));
    }
}
