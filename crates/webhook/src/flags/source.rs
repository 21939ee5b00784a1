//! The flags of the configuration, and the source that they select.

use std::path::PathBuf;

use clap::Args;
use serve::cluster;

use super::WebhookFlags;
use crate::configuration::{ConfigFile, Source};

/// The mount path of the configuration in Istio's chart.
pub(super) const CONFIG: &str = "/etc/istio/inject/config";
/// The mount path of the values in Istio's chart.
const VALUES: &str = "/etc/istio/inject/values";
/// The mount path of the mesh configuration in Istio's chart.
const MESH: &str = "/etc/istio/config/mesh";

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Configuration")]
pub(super) struct Configuration {
    /// File of policy and templates; without it and without a ConfigMap, the built-in configuration is used
    #[arg(long = "injectConfig")]
    pub(super) inject_config: Option<PathBuf>,
    /// File of the templates' values; /etc/istio/inject/values, if it exists, by default
    #[arg(long = "injectValues")]
    pub(super) inject_values: Option<PathBuf>,
    /// File of the mesh's configuration; /etc/istio/config/mesh, if it exists, by default
    #[arg(long = "meshConfig")]
    pub(super) mesh_config: Option<PathBuf>,
    /// ConfigMap to watch instead of the files, with keys config and values
    #[arg(long = "injectConfigMapName", env = "INJECTION_CONFIG_MAP_NAME")]
    pub(super) inject_config_map: Option<String>,
    /// ConfigMap of the mesh's configuration, with key mesh
    #[arg(long = "meshConfigMapName", env = "SHARED_MESH_CONFIG", default_value = "istio")]
    pub(super) mesh_config_map: String,
    /// Namespace of istiod, whose ConfigMaps istio-sidecar-injector and istio are watched if no other configuration is
    /// given; the built-in configuration is used until istio-sidecar-injector exists
    #[arg(long = "istioNamespace", env = "ISTIO_NAMESPACE")]
    pub(super) istio_namespace: Option<String>,
}

/// A flag that names a file of the configuration, although the file is not read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unused {
    #[error("{0} has no effect without --injectConfig: add that, or remove {0}")]
    WithoutFile(&'static str),
    #[error("{0} has no effect beside --injectConfigMapName (INJECTION_CONFIG_MAP_NAME): remove one of the two")]
    BesideMap(&'static str),
}

impl WebhookFlags {
    /// Checks that the files that flags name are read: otherwise a configuration other than the named one would be used.
    ///
    /// # Errors
    /// A flag names a file, but the source is not files.
    pub fn check_source(&self, source: &Source) -> Result<(), Unused> {
        if matches!(source, Source::Files { .. }) {
            return Ok(());
        }
        let Configuration { inject_config, inject_values, mesh_config, .. } = &self.configuration;
        let files =
            [("--injectConfig", inject_config), ("--injectValues", inject_values), ("--meshConfig", mesh_config)];
        let Some((flag, _)) = files.into_iter().find(|(_, file)| file.is_some()) else { return Ok(()) };
        match source {
            Source::ConfigMaps { optional: false, .. } => Err(Unused::BesideMap(flag)),
            _ => Err(Unused::WithoutFile(flag)),
        }
    }

    /// Returns the source of the configuration. `exists`: whether a file exists.
    ///
    /// # Errors
    /// The source is a ConfigMap, and no client can be created.
    pub async fn source(&self, exists: impl Fn(&std::path::Path) -> bool) -> Result<Source, cluster::Error> {
        let Configuration {
            inject_config,
            inject_values,
            mesh_config,
            inject_config_map,
            mesh_config_map,
            istio_namespace,
        } = self.configuration.clone();
        if let Some(injection) = inject_config_map.filter(|name| !name.is_empty()) {
            let client = self.client().await?;
            return Ok(Source::ConfigMaps {
                client,
                namespace: self.namespace.clone(),
                injection,
                mesh: mesh_config_map,
                optional: false,
            });
        }
        let config = inject_config.or_else(|| exists(CONFIG.as_ref()).then(|| CONFIG.into()));
        Ok(match (config, istio_namespace.filter(|namespace| !namespace.is_empty())) {
            (Some(config), _) => {
                let file = |named: Option<PathBuf>, usual: &str| ConfigFile {
                    is_optional: named.is_none(),
                    path: named.unwrap_or_else(|| usual.into()),
                };
                Source::Files { config, values: file(inject_values, VALUES), mesh: file(mesh_config, MESH) }
            }
            (None, Some(namespace)) => Source::ConfigMaps {
                client: self.client().await?,
                namespace,
                injection: self.revised("istio-sidecar-injector"),
                mesh: self.revised("istio"),
                optional: true,
            },
            (None, None) => Source::Default,
        })
    }
}
