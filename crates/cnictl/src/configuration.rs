//! Loads the injection configuration from files, a cluster, or the built-in default.
//!
//! For each part (templates, values, mesh), an `IstioOperator` takes precedence over a file, and a file over the cluster's ConfigMap. A
//! part that neither a file nor a cluster contains is an error that names its flag. The built-in configuration is used if a flag requests
//! it, or if no file is named and the cluster has no Istio configuration.

mod cluster;
mod kubeconfig;
mod operator;

use std::path::PathBuf;

use clap::Args;
use inject::istio::{self, BuiltIn, Injector, Mesh, Platform, Settings, Values};
use kube::Client;
use serde_json::{Value, json};
use serve::cluster as server;

use super::text::read;
use super::{Error, Streams};
use cluster::Maps;
pub(super) use cluster::{ClusterFlags, Nodes, await_response, in_time};
use operator::Operator;

/// The default namespace of the control plane.
const NAMESPACE: &str = "istio-system";
const INJECT_MAP_FLAG: &str = "--injectConfigMapName";
const MESH_MAP_FLAG: &str = "--meshConfigMapName";

/// Flags of the configuration, with the names of `istioctl`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Configuration")]
#[group(skip)]
pub(super) struct ConfigurationFlags {
    /// File of the injection's configuration, or of a single template
    #[arg(long = "injectConfigFile", value_name = "FILE")]
    inject_config_file: Option<PathBuf>,
    /// File of the mesh's configuration
    #[arg(long = "meshConfigFile", value_name = "FILE")]
    mesh_config_file: Option<PathBuf>,
    /// File of the values that templates use
    #[arg(long = "valuesFile", value_name = "FILE")]
    values_file: Option<PathBuf>,
    /// File of an IstioOperator, whose values, meshConfig and fields that stand for values (hub, tag, revision, namespace,
    /// components.cni, the profile openshift) win over those of other files
    #[arg(long = "operatorFileName", value_name = "FILE")]
    operator_file: Option<PathBuf>,
    /// ConfigMap of the injection's configuration; by default istio-sidecar-injector, and the revision behind it
    #[arg(long = "injectConfigMapName", value_name = "NAME", hide = true)]
    inject_config_map: Option<String>,
    /// ConfigMap of the mesh's configuration; by default istio, and the revision behind it
    #[arg(long = "meshConfigMapName", value_name = "NAME")]
    mesh_config_map: Option<String>,
    /// Not supported: templates are not read from a webhook
    #[arg(long = "webhookConfig", value_name = "NAME", hide = true)]
    webhook_config: Option<String>,
    /// Revision of the control plane
    #[arg(long, short, default_value = "")]
    revision: String,
    /// Namespace of the control plane
    #[arg(long = "istioNamespace", short = 'i', env = "ISTIO_NAMESPACE", default_value = NAMESPACE)]
    istio_namespace: String,
    /// Platform: `openshift`, or another; empty: that of the values (global.platform)
    #[arg(long, env = "PLATFORM", default_value = "")]
    platform: String,
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Use the configuration that is compiled in, without a cluster; files of values are laid over its values, as by Helm, and
    /// files of the mesh replace its mesh
    #[arg(long = "builtIn", conflicts_with_all = ["inject_config_file", "inject_config_map", "mesh_config_map"])]
    built_in: bool,
    /// Whether the cluster has native sidecars: true, false, or auto to read the versions of its nodes
    #[arg(long = "nativeSidecars", default_value = "auto", value_parser = ["true", "false", "auto"])]
    native_sidecars: String,
}

/// The inputs of an injection: the injector with its configuration, the nodes' support for native sidecars, and a
/// client for the cluster.
pub(super) struct Loaded {
    pub(super) injector: Injector,
    /// The support for native sidecars by node.
    pub(super) nodes: Nodes,
    /// A client to read pods with.
    pub(super) client: Option<Client>,
}

/// The parts of the configuration that files contain; `None` for parts without a file.
#[derive(Default)]
struct Files {
    settings: Option<Settings>,
    values: Option<Values>,
    mesh: Option<Mesh>,
    /// The values that the fields of an IstioOperator without `spec.values` imply. They override the values from other sources.
    implied: Value,
    /// A warning about the profile of an IstioOperator, if not all of its values are used.
    unused_profile: Option<String>,
}

impl Files {
    fn are_complete(&self) -> bool {
        self.has_injection() && self.mesh.is_some()
    }

    /// Whether templates and values are complete.
    fn has_injection(&self) -> bool {
        let needs_values = self.settings.as_ref().is_none_or(Settings::needs_values);
        self.settings.is_some() && (self.values.is_some() || !needs_values)
    }
}

impl ConfigurationFlags {
    /// Reads files, then the missing parts from the cluster. `needed`: whether a cluster is required even if the files are complete.
    pub(super) async fn load(&self, needed: bool, streams: &mut Streams<'_>) -> Result<Loaded, Error> {
        if self.webhook_config.is_some() {
            return Err(Error::WebhookConfig);
        }
        let files = self.read_files()?;
        self.check_maps(files.as_ref())?;
        if let Some(warning) = files.as_ref().and_then(|files| files.unused_profile.as_deref()) {
            self.warn(warning, streams);
        }
        let complete = self.built_in || files.as_ref().is_some_and(Files::are_complete);
        if complete && !needed && self.cluster.are_given() {
            self.warn("--kubeconfig and --context are not used: the configuration needs no cluster", streams);
        }
        // A client is created only if it is used, because its creation may execute the kubeconfig's credential plugin.
        let (client, unknown) = if complete && !needed { (None, None) } else { self.client(needed, streams).await? };
        let config = match (files, &client) {
            (files, _) if self.built_in => self.built_in_with(files.unwrap_or_default())?,
            (Some(files), client) => self.complete(files, client.as_ref()).await?,
            (None, Some(client)) => match self.read_cluster(client).await? {
                Some(config) => config,
                None => {
                    let place = format!("{} has no ConfigMap {}", self.istio_namespace, self.injection_map());
                    self.warn(&format!("namespace {place}: using the configuration that is compiled in"), streams);
                    self.built_in_with(Files::default())?
                }
            },
            (None, None) => {
                self.check_no_map()?;
                return Err(unknown.map_or(Error::NoFile, Error::NoConfiguration));
            }
        };
        config.warnings().for_each(|warning| self.warn(&warning, streams));
        let nodes = match (&*self.native_sidecars, &client) {
            ("auto", Some(client)) => Nodes::read(client).await?,
            (switch, _) => Nodes::uniform(switch == "true"),
        };
        Ok(Loaded { injector: Injector::new(config), nodes, client })
    }

    /// Returns an error if a flag names a ConfigMap whose parts are all in files, because the ConfigMap would not be
    /// read.
    fn check_maps(&self, files: Option<&Files>) -> Result<(), Error> {
        let Some(files) = files else { return Ok(()) };
        let injection = files.has_injection().then_some("--injectConfigFile and --valuesFile");
        let mesh = files.mesh.is_some().then_some("--meshConfigFile or --operatorFileName");
        match ((&self.inject_config_map, injection), (&self.mesh_config_map, mesh)) {
            ((Some(_), Some(files)), _) => Err(Error::MapNotRead { flag: INJECT_MAP_FLAG, files }),
            (_, (Some(_), Some(files))) => Err(Error::MapNotRead { flag: MESH_MAP_FLAG, files }),
            _ => Ok(()),
        }
    }

    /// Returns an error if a flag names a ConfigMap although no cluster is known.
    fn check_no_map(&self) -> Result<(), Error> {
        let maps = [(&self.inject_config_map, INJECT_MAP_FLAG), (&self.mesh_config_map, MESH_MAP_FLAG)];
        match maps.into_iter().find_map(|(name, flag)| Some((name.clone()?, flag))) {
            Some((map, flag)) => Err(Error::MapWithoutCluster { flag, map }),
            None => Ok(()),
        }
    }

    /// Creates a client for the cluster of the flags or of the environment. Returns why there is none if the environment
    /// names no cluster and none is `needed`.
    async fn client(
        &self,
        needed: bool,
        streams: &mut Streams<'_>,
    ) -> Result<(Option<Client>, Option<server::Error>), Error> {
        match self.cluster.client(streams).await {
            Ok(client) => Ok((Some(client), None)),
            Err(error @ server::Error::NoKubeconfig(_)) if !needed => Ok((None, Some(error))),
            // A cluster that the command line or the environment names must be accessible, even if it is not needed.
            Err(error) => Err(error.into()),
        }
    }

    fn warn(&self, text: &str, streams: &mut Streams<'_>) {
        // An unwritable warning must not fail the command.
        let _ = writeln!(streams.err, "{text}");
    }

    fn revision(&self) -> &str {
        if self.revision == "default" { "" } else { &self.revision }
    }

    fn injection_map(&self) -> String {
        self.map(self.inject_config_map.as_deref(), "istio-sidecar-injector")
    }

    fn mesh_map(&self) -> String {
        self.map(self.mesh_config_map.as_deref(), "istio")
    }

    /// Returns the given name of a ConfigMap; if none or the default name is given, returns the default name for this
    /// revision.
    fn map(&self, given: Option<&str>, default: &str) -> String {
        match (given.filter(|given| *given != default), self.revision()) {
            (Some(given), _) => given.to_owned(),
            (None, "") => default.to_owned(),
            (None, revision) => format!("{default}-{revision}"),
        }
    }

    /// Returns the built-in configuration with the values and the mesh from files, for the revision and the namespace of the flags.
    fn built_in_with(&self, files: Files) -> Result<istio::Config, Error> {
        let mut given = json!({});
        if !self.revision.is_empty() {
            given["revision"] = self.revision().into();
        }
        if self.istio_namespace != NAMESPACE {
            given["global"]["istioNamespace"] = self.istio_namespace.as_str().into();
        }
        let values = Values::new(given).over(Values::new(files.implied).over(files.values.unwrap_or_default()));
        let platform = Some(self.platform.as_str()).filter(|name| !name.is_empty()).map(Platform::named);
        Ok(BuiltIn::config_with(values, files.mesh, platform)?)
    }

    /// Reads the named files; `None` if there are none.
    fn read_files(&self) -> Result<Option<Files>, Error> {
        let text = |path: &Option<PathBuf>| path.as_deref().map(read).transpose();
        let wrong = |what: &'static str| move |cause| Error::Configuration { what: what.to_owned(), cause };
        let named = [&self.inject_config_file, &self.mesh_config_file, &self.values_file, &self.operator_file];
        if named.iter().all(|file| file.is_none()) {
            return Ok(None);
        }
        let operator = text(&self.operator_file)?.map(|text| Operator::parse(&text)).transpose()?.unwrap_or_default();
        let injection = text(&self.inject_config_file)?.map(|text| settings(&text));
        let values = text(&self.values_file)?.map(|text| Values::parse(&text));
        let mesh = text(&self.mesh_config_file)?.map(|text| Mesh::parse(&text));
        let values = values.transpose().map_err(wrong("--valuesFile"))?;
        let (values, implied) = match operator.values {
            Some(own) => (Some(own.over(Values::new(operator.implied))), Value::Null),
            None => (values, operator.implied),
        };
        Ok(Some(Files {
            implied,
            unused_profile: operator.unused_profile,
            settings: injection.transpose().map_err(wrong("--injectConfigFile"))?,
            values,
            mesh: operator.mesh.or(mesh.transpose().map_err(wrong("--meshConfigFile"))?),
        }))
    }

    /// Reads the parts that the files lack from the cluster.
    async fn complete(&self, files: Files, client: Option<&Client>) -> Result<istio::Config, Error> {
        let (injection, mesh_map) = (self.injection_map(), self.mesh_map());
        let key = async |flags: &'static str, map: &str, key: &str| match client {
            Some(client) => self.maps(client).key(map, key).await,
            None => Err(Error::NotGiven { flags, map: map.to_owned() }),
        };
        let mesh = match files.mesh {
            Some(mesh) => mesh,
            None => {
                let text = key("--meshConfigFile or --operatorFileName", &mesh_map, "mesh").await?;
                Mesh::parse(&text).map_err(self.wrong(&mesh_map))?
            }
        };
        let settings = match files.settings {
            Some(settings) => settings,
            None => {
                let text = key("--injectConfigFile", &injection, "config").await?;
                settings(&text).map_err(self.wrong(&injection))?
            }
        };
        let values = match files.values {
            Some(values) => values,
            None if !settings.needs_values() => Values::default(),
            None => {
                let text = key("--valuesFile or --operatorFileName", &injection, "values").await?;
                Values::parse(&text).map_err(self.wrong(&injection))?
            }
        };
        Ok(self.config(settings, Values::new(files.implied).over(values), mesh))
    }

    /// Reads the cluster's injection configuration; `None` if the cluster has none and no flag names a ConfigMap.
    async fn read_cluster(&self, client: &Client) -> Result<Option<istio::Config>, Error> {
        let injection = self.injection_map();
        let is_named = self.inject_config_map.is_some() || self.mesh_config_map.is_some();
        if !is_named && self.maps(client).find(&injection).await?.is_none() {
            return Ok(None);
        }
        self.complete(Files::default(), Some(client)).await.map(Some)
    }

    fn config(&self, settings: Settings, values: Values, mesh: Mesh) -> istio::Config {
        let revision = self.revision().to_owned();
        let platform = if self.platform.is_empty() { Platform::of(&values) } else { Platform::named(&self.platform) };
        let compliance_policy = String::new();
        istio::Config { settings, values, mesh, revision, platform, compliance_policy }
    }

    fn maps<'a>(&'a self, client: &'a Client) -> Maps<'a> {
        Maps { client, namespace: &self.istio_namespace }
    }

    fn wrong(&self, map: &str) -> impl Fn(istio::Error) -> Error {
        let what = format!("ConfigMap {}/{map}", self.istio_namespace);
        move |cause| Error::Configuration { what: what.clone(), cause }
    }
}

/// Parses a whole injection configuration or a single template. The text is a configuration if a line starts with one
/// of its keys, or with `{` but not `{{`.
fn settings(text: &str) -> Result<Settings, istio::Error> {
    let whole = text.lines().any(|line| {
        ["templates:", "template:", "policy:", "{"].iter().any(|key| line.starts_with(key)) && !line.starts_with("{{")
    });
    if whole { Settings::parse(text, None) } else { Settings::from_template(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_template_is_distinguished_from_a_configuration() {
        assert!(settings("policy: enabled\ntemplates:\n  sidecar: 'spec: {}'\n").is_ok());
        assert!(settings("{{- $x := 1 }}\nspec:\n  containers: []\n").is_ok());
        assert!(settings("templates: [").is_err(), "a broken configuration is not used as a template");
    }
}
