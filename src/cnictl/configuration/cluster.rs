//! What a cluster knows of the injection's configuration: ConfigMaps, and the nodes' kubelets.
//!
//! `configuration` asks for the parts that no file gives.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tokio::time::timeout;

use super::super::Error;
use crate::serve::cluster;
use crate::webhook::is_native;

/// The longest wait for an API server.
const PATIENCE: Duration = Duration::from_secs(10);
/// Nodes in one page; more of them do not change much.
const NODES: u32 = 500;

/// A client for the cluster that the flags name, or that of the environment.
pub(super) async fn client(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Client, cluster::Error> {
    let Some(context) = context else {
        return match kubeconfig {
            Some(path) => cluster::client(Some(path)).await,
            None => inferred().await,
        };
    };
    let options = KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
    let path = kubeconfig.map(Path::to_owned).unwrap_or_default();
    let wrong = |error| cluster::Error::Kubeconfig { path: path.clone(), error };
    let read = if kubeconfig.is_some() { Kubeconfig::read_from(&path) } else { Kubeconfig::read() };
    let config = Config::from_custom_kubeconfig(read.map_err(wrong)?, &options).await.map_err(wrong)?;
    Client::try_from(config).map_err(|error| cluster::Error::Client(Box::new(error)))
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

/// The ConfigMaps of the control plane's namespace.
pub(super) struct Maps<'a> {
    pub(super) client: &'a Client,
    pub(super) namespace: &'a str,
}

impl Maps<'_> {
    /// The keys of a ConfigMap; none where there is no such map.
    pub(super) async fn find(&self, name: &str) -> Result<Option<BTreeMap<String, String>>, Error> {
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), self.namespace);
        let found = answered(|| self.title(name), maps.get_opt(name)).await?;
        Ok(found.map(|map| map.data.unwrap_or_default()))
    }

    /// A key of a ConfigMap.
    pub(super) async fn key(&self, name: &str, key: &str) -> Result<String, Error> {
        let ask = |reason: String| Error::Ask { what: self.title(name), reason };
        let mut found = self.find(name).await?.ok_or_else(|| ask("not found".to_owned()))?;
        found.remove(key).ok_or_else(|| ask(format!("missing configuration map key {key:?}")))
    }

    fn title(&self, name: &str) -> String {
        format!("valid configmap {name:?} from namespace {:?}", self.namespace)
    }
}

/// Which nodes have native sidecars.
#[derive(Debug, Clone)]
pub(in crate::cnictl) struct Nodes {
    /// What holds for pods whose node is not chosen, or not known.
    all: bool,
    by_name: BTreeMap<String, bool>,
}

impl Nodes {
    /// Nodes of which all have native sidecars, or none.
    pub(super) fn alike(native: bool) -> Self {
        Self { all: native, by_name: BTreeMap::new() }
    }

    /// The nodes of a cluster. Where there is none yet, new ones are expected to be up to date.
    pub(super) async fn read(client: &Client) -> Result<Self, Error> {
        let nodes = Api::<Node>::all(client.clone());
        let params = ListParams::default().limit(NODES);
        let found = answered(|| "nodes".to_owned(), nodes.list(&params)).await?;
        let native = |node: Node| {
            let version = node.status.and_then(|status| status.node_info).map(|info| info.kubelet_version);
            (node.metadata.name.unwrap_or_default(), version.is_some_and(|version| is_native(&version)))
        };
        let by_name: BTreeMap<String, bool> = found.items.into_iter().map(native).collect();
        Ok(Self { all: by_name.values().all(|native| *native), by_name })
    }

    /// Whether a pod of this node has a native sidecar.
    pub(in crate::cnictl) fn have_native_sidecars(&self, node: Option<&str>) -> bool {
        node.and_then(|node| self.by_name.get(node)).copied().unwrap_or(self.all)
    }
}

/// What the API server answers in time.
pub(in crate::cnictl) async fn answered<T>(
    what: impl Fn() -> String,
    asked: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    match timeout(PATIENCE, asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(Error::Ask { what: what(), reason: error.to_string() }),
        Err(_) => Err(Error::Ask { what: what(), reason: format!("no answer within {PATIENCE:?}") }),
    }
}
