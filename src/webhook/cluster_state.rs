//! What of the cluster changes an injection: whether its nodes have native sidecars, proxy configurations, namespaces' users.
//!
//! The binary starts [`watch`] as a task; `istio` reads. The server is not ready before all of it has been listed once: pods
//! that are made right after a restart get the same sidecars as others. A resource that the cluster does not have is an
//! empty list.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::OptionFuture;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::serve::health::Readiness;

/// Kubelets from this minor version on run native sidecars without a switch.
const NATIVE_SINCE: u32 = 33;
/// Objects in a page of a list.
const PAGE: u32 = 250;

/// Whether injected sidecars are native ones, where the pod does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Native {
    /// They are.
    On,
    /// They are not.
    #[default]
    Off,
    /// They are where every node can run them.
    Auto,
}

/// What is known of the cluster; clones share it.
#[derive(Debug, Clone, Default)]
pub struct ClusterState(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    native: Native,
    /// By node: whether it runs native sidecars.
    nodes: WatchCache<bool>,
    proxy_configs: WatchCache<Arc<Value>>,
    /// By namespace.
    annotations: WatchCache<Arc<BTreeMap<String, String>>>,
}

/// Objects of a watch, as much of each as is needed, by namespace and name.
#[derive(Debug)]
pub(super) struct WatchCache<T> {
    /// None before the first list.
    pub(super) known: Option<BTreeMap<(String, String), T>>,
    /// A list that is not complete yet changes nothing.
    listing: BTreeMap<(String, String), T>,
}

impl<T> Default for WatchCache<T> {
    fn default() -> Self {
        Self { known: None, listing: BTreeMap::new() }
    }
}

impl<T> WatchCache<T> {
    pub(super) fn apply<K: ResourceExt>(&mut self, event: Event<K>, keep: impl Fn(K) -> T) {
        let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(object) => drop(self.listing.insert(key(&object), keep(object))),
            Event::InitDone => self.known = Some(std::mem::take(&mut self.listing)),
            Event::Apply(object) => drop(self.known.get_or_insert_default().insert(key(&object), keep(object))),
            Event::Delete(object) => drop(self.known.get_or_insert_default().remove(&key(&object))),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&(String, String), &T)> {
        self.known.iter().flatten()
    }
}

impl ClusterState {
    /// Of a cluster about which nothing else is known yet.
    pub fn new(native: Native) -> Self {
        Self(Arc::new(Mutex::new(Known { native, ..Known::default() })))
    }

    /// Whether sidecars are native ones.
    pub fn native_sidecars(&self) -> bool {
        self.read(|known| match known.native {
            Native::On => true,
            Native::Off => false,
            // Nodes that nobody has told of may be old.
            Native::Auto => known.nodes.known.is_some() && known.nodes.iter().all(|(_, native)| *native),
        })
    }

    /// Whether the sidecar of a pod is a native one: by its node where it is bound to one that is known, else by all nodes.
    pub fn native_sidecars_of(&self, node: Option<&str>) -> bool {
        let own = |node: &str| {
            self.read(|known| {
                let nodes = known.nodes.known.as_ref().filter(|_| known.native == Native::Auto)?;
                nodes.get(&(String::new(), node.to_owned())).copied()
            })
        };
        node.and_then(own).unwrap_or_else(|| self.native_sidecars())
    }

    /// Proxy configurations of these namespaces.
    pub(super) fn proxy_configs(&self, namespaces: [&str; 2]) -> Vec<Value> {
        self.read(|known| {
            let wanted = known.proxy_configs.iter().filter(|((namespace, _), _)| namespaces.contains(&&**namespace));
            wanted.map(|(_, resource)| Value::clone(resource)).collect()
        })
    }

    /// A namespace's annotations.
    pub(super) fn annotations(&self, namespace: &str) -> Option<Arc<BTreeMap<String, String>>> {
        self.read(|known| known.annotations.known.as_ref()?.get(&(String::new(), namespace.to_owned())).cloned())
    }

    fn read<T>(&self, read: impl FnOnce(&mut Known) -> T) -> T {
        read(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether a kubelet of this version (`v1.33.1`) runs native sidecars; what cannot be read does not.
pub fn is_native(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (1, NATIVE_SINCE),
        _ => false,
    }
}

/// Keeps it as the cluster is. Never ends by itself. `namespaces`: their annotations are wanted. What is wanted is missing in
/// `readiness` from the call on, until it has been listed.
pub fn watch(
    client: Client,
    cluster_state: ClusterState,
    namespaces: bool,
    readiness: &Readiness,
) -> impl Future<Output = ()> + use<> {
    let nodes = (cluster_state.read(|known| known.native) == Native::Auto).then(|| {
        let version = |node: Node| node.status.and_then(|s| s.node_info).is_some_and(|i| is_native(&i.kubelet_version));
        let (list, api) = (List::new("nodes", readiness), Api::<Node>::all(client.clone()));
        list.follow(api, cluster_state.clone(), |known| &mut known.nodes, version)
    });
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("networking.istio.io", "v1beta1", "ProxyConfig"));
    let configs = Api::<DynamicObject>::all_with(client.clone(), &resource);
    let value = |object: DynamicObject| Arc::new(serde_json::to_value(object).unwrap_or_default());
    let list = List::new("proxyconfigs", readiness);
    let proxy_configs = list.follow(configs, cluster_state.clone(), |known| &mut known.proxy_configs, value);
    let annotations = namespaces.then(|| {
        let annotated = |object: Namespace| Arc::new(object.metadata.annotations.unwrap_or_default());
        let (list, api) = (List::new("namespaces", readiness), Api::<Namespace>::all(client));
        list.follow(api, cluster_state, |known| &mut known.annotations, annotated)
    });
    async {
        tokio::join!(OptionFuture::from(nodes), proxy_configs, OptionFuture::from(annotations));
    }
}

/// A resource that the server is not ready without.
struct List {
    what: &'static str,
    readiness: Readiness,
}

impl List {
    fn new(what: &'static str, readiness: &Readiness) -> Self {
        readiness.missing(what, "they have not been listed yet");
        Self { what, readiness: readiness.clone() }
    }

    async fn follow<K, T>(
        self,
        api: Api<K>,
        cluster_state: ClusterState,
        kept: impl Fn(&mut Known) -> &mut WatchCache<T>,
        keep: impl Fn(K) -> T,
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let events = watcher(api, pages()).default_backoff().inspect(|event| match event {
            Err(error) if is_absent(error) => {
                cluster_state.read(|known| _ = kept(known).known.get_or_insert_default());
                self.readiness.ready(self.what);
            }
            Err(error) if cluster_state.read(|known| kept(known).known.is_none()) => {
                self.readiness.missing(self.what, format!("they cannot be listed: {error}"));
            }
            _ => {}
        });
        follow(self.what, events, |event| {
            cluster_state.read(|known| kept(known).apply(event, &keep));
            if cluster_state.read(|known| kept(known).known.is_some()) {
                self.readiness.ready(self.what);
            }
        })
        .await;
    }
}

/// Whether the cluster has no such resource: as far as is known, there are none of it.
pub(super) fn is_absent(error: &watcher::Error) -> bool {
    let watcher::Error::InitialListFailed(kube::Error::Api(status)) = error else { return false };
    status.code == 404
}

pub(super) fn pages() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

pub(super) async fn follow<K>(
    what: &'static str,
    events: impl Stream<Item = watcher::Result<Event<K>>>,
    mut learn: impl FnMut(Event<K>),
) {
    let mut events = std::pin::pin!(events);
    let mut warned = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => learn(event),
            // Clusters without Istio's resources are as good as any: said once.
            Err(error) if !warned => {
                warned = true;
                tracing::warn!(%error, "{what} cannot be watched");
            }
            Err(error) => tracing::debug!(%error, "{what} cannot be watched"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelets_tell_whether_they_run_native_sidecars() {
        for (version, native) in
            [("v1.33.1", true), ("v1.34.0-rc.1", true), ("v2.0.0", true), ("v1.32.9", false), ("x", false), ("", false)]
        {
            assert_eq!(is_native(version), native, "{version}");
        }
    }

    #[test]
    fn one_old_node_is_enough_to_do_without() {
        let node = |name: &str, version: &str| {
            serde_json::from_value::<Node>(serde_json::json!({ "metadata": { "name": name },
                "status": { "nodeInfo": { "kubeletVersion": version } } }))
            .unwrap()
        };
        let cluster_state = ClusterState::new(Native::Auto);
        let learn = |event: Event<Node>| {
            cluster_state.read(|known| {
                known.nodes.apply(event, |node| {
                    is_native(&node.status.unwrap().node_info.map(|i| i.kubelet_version).unwrap_or_default())
                });
            });
        };
        assert!(!cluster_state.native_sidecars(), "nothing is known yet");
        learn(Event::Init);
        learn(Event::InitDone);
        assert!(cluster_state.native_sidecars(), "an empty cluster is a new one");
        learn(Event::Apply(node("a", "v1.33.0")));
        assert!(cluster_state.native_sidecars());
        learn(Event::Apply(node("b", "v1.30.0")));
        assert!(!cluster_state.native_sidecars());
        for (name, native) in [(Some("a"), true), (Some("b"), false), (Some("nosuch"), false), (None, false)] {
            assert_eq!(cluster_state.native_sidecars_of(name), native, "{name:?}");
        }
        learn(Event::Delete(node("b", "v1.30.0")));
        assert!(cluster_state.native_sidecars());
    }
}
