//! Reads the injection configuration from a cluster: ConfigMaps and kubelet versions.
//!
//! The module `configuration` calls it for the parts that no file contains.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serve::cluster;
use tokio::time::timeout;

use super::super::{Error, Streams};
use super::kubeconfig::{Files, Found};
use webhook::is_native;

/// The time limit of an API request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of nodes that are listed; further nodes rarely change the result.
const MAX_NODES: u32 = 500;

/// Flags that name a cluster.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub(crate) struct ClusterFlags {
    /// kubeconfig of the cluster
    #[arg(long, short = 'c', value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long)]
    context: Option<String>,
}

impl ClusterFlags {
    pub(super) fn are_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    /// Creates a client for the cluster of the flags or, without such flags, of the environment: by its kubeconfig or, without one, by the
    /// pod's service account. In the last case, it warns like kubectl if `KUBECONFIG` names files that do not exist.
    pub(crate) async fn client(&self, streams: &mut Streams<'_>) -> Result<Client, cluster::Error> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let environment = Files::of_environment();
        let (kubeconfig, files) = match &self.kubeconfig {
            Some(path) => {
                let wrong = |error| cluster::Error::Kubeconfig { path: path.clone(), error };
                (Kubeconfig::read_from(path).map_err(wrong)?, path.clone())
            }
            None => match environment.read()? {
                Some(Found { kubeconfig, files }) => (kubeconfig, files),
                None => return client_without_retries(self.in_cluster(&environment, streams)?),
            },
        };
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        client_without_retries(config.map_err(|error| cluster::Error::Kubeconfig { path: files, error })?)
    }

    /// Returns the configuration of the pod's service account, for a command without a kubeconfig. It is an error if
    /// `--context` names a context, because only a kubeconfig has contexts.
    fn in_cluster(&self, missing: &Files, streams: &mut Streams<'_>) -> Result<Config, cluster::Error> {
        let none = || cluster::Error::NoKubeconfig(missing.names());
        if self.context.is_some() {
            return Err(none());
        }
        let config = Config::incluster().map_err(|_| none())?;
        if missing.are_given {
            // An unwritable warning must not fail the command.
            let _ = writeln!(
                streams.err,
                "KUBECONFIG names {}, and no such file exists: using the service account of this pod",
                missing.names()
            );
        }
        Ok(config)
    }
}

/// Creates a client without retries. Retries of requests to an unreachable API server would take longer than the
/// commands' time limits, and the error of an exceeded time limit does not name the cause.
fn client_without_retries(mut config: Config) -> Result<Client, cluster::Error> {
    config.default_retry = false;
    Client::try_from(config).map_err(|error| cluster::Error::Client(Box::new(error)))
}

pub(super) struct Maps<'a> {
    pub(super) client: &'a Client,
    pub(super) namespace: &'a str,
}

impl Maps<'_> {
    /// Reads a ConfigMap's data; `None` if the ConfigMap does not exist.
    pub(super) async fn find(&self, name: &str) -> Result<Option<BTreeMap<String, String>>, Error> {
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), self.namespace);
        let found = in_time(|| self.title(name), maps.get_opt(name)).await?;
        Ok(found.map(|map| map.data.unwrap_or_default()))
    }

    /// Reads a key of a ConfigMap.
    pub(super) async fn key(&self, name: &str, key: &str) -> Result<String, Error> {
        let unread = |reason: String| Error::Unread { what: self.title(name), reason };
        let mut found = self.find(name).await?.ok_or_else(|| unread("not found".to_owned()))?;
        found.remove(key).ok_or_else(|| unread(format!("missing configuration map key {key:?}")))
    }

    fn title(&self, name: &str) -> String {
        format!("valid configmap {name:?} from namespace {:?}", self.namespace)
    }
}

/// The nodes' support for native sidecars.
#[derive(Debug, Clone)]
pub(crate) struct Nodes {
    /// Whether a pod gets a native sidecar if the pod has no node yet, or its node is not in `by_name`.
    all: bool,
    by_name: BTreeMap<String, bool>,
}

impl Nodes {
    /// Returns the state of a cluster in which all nodes support native sidecars, or none does.
    pub(super) fn uniform(native: bool) -> Self {
        Self { all: native, by_name: BTreeMap::new() }
    }

    /// Reads the cluster's nodes. If the cluster has none yet, its future nodes are assumed to support native sidecars.
    pub(super) async fn read(client: &Client) -> Result<Self, Error> {
        let nodes = Api::<Node>::all(client.clone());
        let params = ListParams::default().limit(MAX_NODES);
        let found = in_time(|| "nodes".to_owned(), nodes.list(&params)).await?;
        let native = |node: Node| {
            let version = node.status.and_then(|status| status.node_info).map(|info| info.kubelet_version);
            (node.metadata.name.unwrap_or_default(), version.is_some_and(|version| is_native(&version)))
        };
        let by_name: BTreeMap<String, bool> = found.items.into_iter().map(native).collect();
        Ok(Self { all: by_name.values().all(|native| *native), by_name })
    }

    /// Whether a pod on this node gets a native sidecar.
    pub(crate) fn have_native_sidecars(&self, node: Option<&str>) -> bool {
        node.and_then(|node| self.by_name.get(node)).copied().unwrap_or(self.all)
    }
}

/// Awaits an API response within the time limit.
pub(crate) async fn in_time<T>(
    what: impl Fn() -> String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    await_response(request).await.map_err(|reason| Error::Unread { what: what(), reason })
}

/// Awaits an API response within the time limit; returns why it failed as a message.
pub(crate) async fn await_response<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match timeout(TIMEOUT, request).await {
        Ok(response) => response.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no response within {TIMEOUT:?}")),
    }
}
