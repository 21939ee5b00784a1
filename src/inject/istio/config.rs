//! The configuration of an injector, with all of its texts parsed.

use super::mesh::Mesh;
use super::settings::Settings;
use super::values::Values;
use super::{chart_values, unused, unused_values};

/// The platform of the cluster, if injection depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Platform {
    #[default]
    Kubernetes,
    /// OpenShift, where namespaces have ranges of user and group IDs.
    OpenShift,
}

/// The configuration of an [`Injector`](super::Injector).
#[derive(Debug)]
pub struct Config {
    /// The key `config` of the injection ConfigMap.
    pub settings: Settings,
    /// The key `values` of the injection ConfigMap.
    pub values: Values,
    /// The mesh configuration.
    pub mesh: Mesh,
    /// The control plane's revision; empty is the default one.
    pub revision: String,
    pub platform: Platform,
    /// `COMPLIANCE_POLICY`, such as `fips-140-3`; empty: none.
    pub compliance_policy: String,
}

impl Config {
    /// Returns the warnings for the log about parts of the configuration that are ignored.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let unknown = unused::listed(&self.mesh.unknown, "fields of the mesh configuration that Istio does not have");
        let unread = unused_values::warning(&self.settings, &self.values.raw);
        let unfollowed = chart_values::warning(&self.settings, &self.values.raw);
        self.settings.warnings.iter().cloned().chain(unknown).chain(unread).chain(unfollowed)
    }
}
