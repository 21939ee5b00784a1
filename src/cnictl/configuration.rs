//! Where the commands have their injection from: files, a cluster, or what is compiled in.
//!
//! Whoever names a file is not asked for a cluster. A cluster that has no configuration of Istio's leaves the one that is
//! compiled in, and so does a machine that knows no cluster; one that does not answer is an error.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tokio::time::timeout;

use super::text::read;
use super::{Error, Streams};
use crate::inject::istio::{self, BuiltIn, Injector, Mesh, Platform, Settings, Values};
use crate::serve::cluster;
use crate::webhook::is_native;

/// Longer than this nobody waits for an API server.
const PATIENCE: Duration = Duration::from_secs(10);
/// Nodes in one page; more of them do not change much.
const NODES: u32 = 500;

/// Flags of the configuration, under the names of Istio's tool.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Configuration")]
#[group(skip)]
pub(super) struct Flags {
    /// File of the injection's configuration, or of a single template
    #[arg(long = "injectConfigFile", value_name = "FILE")]
    inject_config_file: Option<PathBuf>,
    /// File of the mesh's configuration
    #[arg(long = "meshConfigFile", value_name = "FILE")]
    mesh_config_file: Option<PathBuf>,
    /// File of the values that templates use
    #[arg(long = "valuesFile", value_name = "FILE")]
    values_file: Option<PathBuf>,
    /// ConfigMap of the injection's configuration
    #[arg(long = "injectConfigMapName", default_value = "istio-sidecar-injector", hide = true)]
    inject_config_map: String,
    /// ConfigMap of the mesh's configuration
    #[arg(long = "meshConfigMapName", default_value = "istio")]
    mesh_config_map: String,
    /// Revision of the control plane
    #[arg(long, short, default_value = "")]
    revision: String,
    /// Namespace of the control plane
    #[arg(long = "istioNamespace", short = 'i', env = "ISTIO_NAMESPACE", default_value = "istio-system")]
    istio_namespace: String,
    /// kubeconfig of the cluster
    #[arg(long, short = 'c', value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long)]
    context: Option<String>,
    /// Use the configuration that is compiled in, and ask no cluster
    #[arg(long = "builtIn", conflicts_with_all = ["inject_config_file", "mesh_config_file", "values_file"])]
    built_in: bool,
    /// Whether the cluster has native sidecars: true, false, or auto to ask it
    #[arg(long = "nativeSidecars", default_value = "auto", value_parser = ["true", "false", "auto"])]
    native_sidecars: String,
}

/// What injects, and what it has to know of the cluster.
pub(super) struct Loaded {
    pub(super) injector: Injector,
    pub(super) native_sidecars: bool,
    /// Where pods can be asked for.
    pub(super) client: Option<Client>,
}

impl Flags {
    /// Reads files or asks the cluster. `needed`: there must be one, whatever files there are.
    pub(super) async fn load(&self, needed: bool, streams: &mut Streams<'_>) -> Result<Loaded, Error> {
        let files = [&self.inject_config_file, &self.mesh_config_file, &self.values_file];
        let from_files = self.built_in || files.iter().any(|file| file.is_some());
        let client = match self.client().await {
            _ if from_files && !needed => None,
            Err(error) if needed => return Err(error.into()),
            client => client.ok(),
        };
        let config = match &client {
            _ if self.built_in => self.compiled_in()?,
            _ if from_files => self.read_files()?,
            Some(client) => match self.read_cluster(client).await? {
                Some(config) => config,
                None => {
                    let place =
                        format!("{} has no ConfigMap {}", self.istio_namespace, self.map(&self.inject_config_map));
                    self.say(&format!("namespace {place}: using the configuration that is compiled in"), streams);
                    self.compiled_in()?
                }
            },
            None => {
                self.say("no cluster is known: using the configuration that is compiled in", streams);
                self.compiled_in()?
            }
        };
        config.settings.warnings.iter().for_each(|warning| self.say(warning, streams));
        let native_sidecars = match (&*self.native_sidecars, &client) {
            ("true", _) => true,
            ("auto", Some(client)) => native(client).await?,
            _ => false,
        };
        Ok(Loaded { injector: Injector::new(config), native_sidecars, client })
    }

    fn say(&self, text: &str, streams: &mut Streams<'_>) {
        // Whoever reads no warnings still wants the answer.
        let _ = writeln!(streams.err, "{text}");
    }

    async fn client(&self) -> Result<Client, cluster::Error> {
        let Some(context) = &self.context else {
            return match &self.kubeconfig {
                Some(path) => cluster::client(Some(path)).await,
                None => inferred().await,
            };
        };
        let options = KubeConfigOptions { context: Some(context.clone()), ..KubeConfigOptions::default() };
        let path = self.kubeconfig.clone().unwrap_or_default();
        let wrong = |error| cluster::Error::Kubeconfig { path: path.clone(), error };
        let read = if self.kubeconfig.is_some() { Kubeconfig::read_from(&path) } else { Kubeconfig::read() };
        let config = Config::from_custom_kubeconfig(read.map_err(wrong)?, &options).await.map_err(wrong)?;
        Client::try_from(config).map_err(|error| cluster::Error::Client(Box::new(error)))
    }

    fn revision(&self) -> &str {
        if self.revision == "default" { "" } else { &self.revision }
    }

    /// A ConfigMap's name for this revision.
    fn map(&self, name: &str) -> String {
        if self.revision().is_empty() { name.to_owned() } else { format!("{name}-{}", self.revision()) }
    }

    fn compiled_in(&self) -> Result<istio::Config, Error> {
        Ok(istio::Config { revision: self.revision().to_owned(), ..BuiltIn::default().config()? })
    }

    fn read_files(&self) -> Result<istio::Config, Error> {
        let text = |path: &Option<PathBuf>| path.as_deref().map(read).transpose();
        let built_in = self.compiled_in()?;
        let wrong = |what: &'static str| move |source| Error::Configuration { what: what.to_owned(), source };
        Ok(istio::Config {
            settings: match text(&self.inject_config_file)? {
                Some(text) => settings(&text).map_err(wrong("--injectConfigFile"))?,
                None => built_in.settings,
            },
            values: match text(&self.values_file)? {
                Some(text) => Values::parse(&text).map_err(wrong("--valuesFile"))?,
                None if self.inject_config_file.is_some() => Values::parse("").map_err(wrong("no values"))?,
                None => built_in.values,
            },
            mesh: match text(&self.mesh_config_file)? {
                Some(text) => Mesh::parse(&text).map_err(wrong("--meshConfigFile"))?,
                None if self.inject_config_file.is_some() => Mesh::default(),
                None => built_in.mesh,
            },
            revision: built_in.revision,
            platform: Platform::Kubernetes,
            compliance_policy: String::new(),
        })
    }

    /// None where the cluster has no such ConfigMap.
    async fn read_cluster(&self, client: &Client) -> Result<Option<istio::Config>, Error> {
        let maps = Api::<ConfigMap>::namespaced(client.clone(), &self.istio_namespace);
        let (injection, mesh) = (self.map(&self.inject_config_map), self.map(&self.mesh_config_map));
        let get = async |name: &str| {
            let what = || format!("configmap {name:?} from namespace {:?}", self.istio_namespace);
            answered(what, maps.get_opt(name)).await
        };
        let Some(found) = get(&injection).await? else { return Ok(None) };
        let key = |map: &ConfigMap, key: &str| map.data.as_ref().and_then(|data| data.get(key)).cloned();
        let missing =
            || Error::Ask { what: injection.clone(), reason: "missing configuration map key \"config\"".into() };
        let config = key(&found, "config").ok_or_else(missing)?;
        let mesh_text = get(&mesh).await?.and_then(|map| key(&map, "mesh")).unwrap_or_default();
        let wrong = |name: &str| {
            let what = format!("ConfigMap {}/{name}", self.istio_namespace);
            move |source| Error::Configuration { what, source }
        };
        Ok(Some(istio::Config {
            settings: settings(&config).map_err(wrong(&injection))?,
            values: Values::parse(&key(&found, "values").unwrap_or_default()).map_err(wrong(&injection))?,
            mesh: Mesh::parse(&mesh_text).map_err(wrong(&mesh))?,
            revision: self.revision().to_owned(),
            platform: Platform::Kubernetes,
            compliance_policy: String::new(),
        }))
    }
}

/// The cluster of the environment: `KUBECONFIG`, the home directory's file, or that of the pod.
async fn inferred() -> Result<Client, cluster::Error> {
    let wrong = |error| cluster::Error::Kubeconfig { path: PathBuf::from("~/.kube/config"), error };
    let config = match Kubeconfig::read() {
        Ok(kubeconfig) => {
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(wrong)?
        }
        Err(_) => Config::incluster().map_err(cluster::Error::InCluster)?,
    };
    Client::try_from(config).map_err(|error| cluster::Error::Client(Box::new(error)))
}

/// A whole configuration, or a template alone: the former has keys of its own at the start of a line.
fn settings(text: &str) -> Result<Settings, istio::Error> {
    let whole = text.lines().any(|line| {
        ["templates:", "template:", "policy:", "{"].iter().any(|key| line.starts_with(key)) && !line.starts_with("{{")
    });
    if whole { Settings::parse(text, None) } else { Settings::from_template(text) }
}

/// Whether every node has native sidecars.
async fn native(client: &Client) -> Result<bool, Error> {
    let nodes = Api::<Node>::all(client.clone());
    let params = ListParams::default().limit(NODES);
    let found = answered(|| "nodes".to_owned(), nodes.list(&params)).await?;
    let version = |node: Node| node.status.and_then(|status| status.node_info).map(|info| info.kubelet_version);
    Ok(found.items.into_iter().all(|node| version(node).is_some_and(|version| is_native(&version))))
}

/// What the API server answers in time.
pub(super) async fn answered<T>(
    what: impl Fn() -> String,
    asked: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    match timeout(PATIENCE, asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(Error::Ask { what: what(), reason: error.to_string() }),
        Err(_) => Err(Error::Ask { what: what(), reason: format!("no answer within {PATIENCE:?}") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_alone_is_told_from_a_whole_configuration() {
        assert!(settings("policy: enabled\ntemplates:\n  sidecar: 'spec: {}'\n").is_ok());
        assert!(settings("{{- $x := 1 }}\nspec:\n  containers: []\n").is_ok());
        assert!(settings("templates: [").is_err(), "a broken configuration is no template");
    }
}
