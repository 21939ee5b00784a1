//! The cluster state on which injection depends: whether nodes support native sidecars, ProxyConfigs, annotations of
//! namespaces, handlers of RuntimeClasses.
//!
//! The binary starts [`watch`] as a task; `istio` reads the state. The server becomes ready after each resource has
//! been listed once, so that pods get the same sidecars before and after a restart. It does not wait for RuntimeClasses,
//! which only decide about warnings and refusals. A resource that the cluster does not define is treated as an empty
//! list.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use futures::future::OptionFuture;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use podfacts::is_sandbox;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serve::health::Readiness;
use serve::resource::watch_list;

/// The first minor version of Kubernetes with native sidecars without a feature gate.
const NATIVE_SINCE: u32 = 33;
/// The page size of a list, in objects.
const PAGE: u32 = 250;

/// Whether injected sidecars are native, unless a pod's annotation decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Native {
    /// All sidecars are native.
    On,
    /// No sidecar is native.
    #[default]
    Off,
    /// Sidecars are native if the pod's node, or each node for an unbound pod, supports them.
    Auto,
}

/// The state of the cluster; clones share it.
#[derive(Debug, Clone, Default)]
pub struct ClusterState(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    native: Native,
    /// Whether each node supports native sidecars.
    nodes: WatchCache<bool>,
    proxy_configs: WatchCache<Arc<Value>>,
    /// Whether each RuntimeClass has the handler of a sandboxed runtime, whose pods have a kernel of their own.
    sandboxes: WatchCache<bool>,
    /// The annotations of each namespace.
    annotations: WatchCache<Arc<BTreeMap<String, String>>>,
}

/// The cache of a watch: a value derived from each object, by namespace and name.
#[derive(Debug)]
pub(super) struct WatchCache<T> {
    /// The values by namespace and name; `None` before the first list.
    pub(super) values: Option<BTreeMap<(String, String), T>>,
    /// The values of a list that is being received, which replace `values` when the list is complete.
    listing: BTreeMap<(String, String), T>,
}

impl<T> Default for WatchCache<T> {
    fn default() -> Self {
        Self { values: None, listing: BTreeMap::new() }
    }
}

impl<T> WatchCache<T> {
    pub(super) fn apply<K: ResourceExt>(&mut self, event: Event<K>, value_of: impl Fn(K) -> T) {
        let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(object) => drop(self.listing.insert(key(&object), value_of(object))),
            Event::InitDone => self.values = Some(std::mem::take(&mut self.listing)),
            Event::Apply(object) => drop(self.values.get_or_insert_default().insert(key(&object), value_of(object))),
            Event::Delete(object) => drop(self.values.get_or_insert_default().remove(&key(&object))),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&(String, String), &T)> {
        self.values.iter().flatten()
    }
}

impl ClusterState {
    /// Creates an empty state.
    pub fn new(native: Native) -> Self {
        Self(Arc::new(Mutex::new(State { native, ..State::default() })))
    }

    /// Whether sidecars of pods that are not bound to a node are native.
    pub fn native_sidecars(&self) -> bool {
        self.read(|state| match state.native {
            Native::On => true,
            Native::Off => false,
            // Before nodes are listed, a node may be too old for native sidecars, so sidecars are not native.
            Native::Auto => state.nodes.values.is_some() && state.nodes.iter().all(|(_, native)| *native),
        })
    }

    /// Whether a pod's sidecar is native. With [`Native::Auto`], this depends on the pod's node if the node is known,
    /// and otherwise on all nodes.
    pub fn native_sidecars_of(&self, node: Option<&str>) -> bool {
        let own = |node: &str| {
            self.read(|state| {
                let nodes = state.nodes.values.as_ref().filter(|_| state.native == Native::Auto)?;
                nodes.get(&(String::new(), node.to_owned())).copied()
            })
        };
        node.and_then(own).unwrap_or_else(|| self.native_sidecars())
    }

    /// Returns the ProxyConfigs of these namespaces.
    pub(super) fn proxy_configs(&self, namespaces: [&str; 2]) -> Vec<Value> {
        self.read(|state| {
            let wanted = state.proxy_configs.iter().filter(|((namespace, _), _)| namespaces.contains(&&**namespace));
            wanted.map(|(_, resource)| Value::clone(resource)).collect()
        })
    }

    /// Returns a namespace's annotations; `None` if the namespace is not known.
    pub(super) fn annotations(&self, namespace: &str) -> Option<Arc<BTreeMap<String, String>>> {
        self.read(|state| state.annotations.values.as_ref()?.get(&(String::new(), namespace.to_owned())).cloned())
    }

    /// Whether the handler of a runtime class is a sandboxed runtime; `None` if the class is not known.
    pub(super) fn is_sandbox(&self, class: &str) -> Option<bool> {
        self.read(|state| state.sandboxes.values.as_ref()?.get(&(String::new(), class.to_owned())).copied())
    }

    fn read<T>(&self, read: impl FnOnce(&mut State) -> T) -> T {
        read(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether a kubelet of this version (`v1.33.1`) supports native sidecars; false for an invalid version.
pub fn is_native(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (1, NATIVE_SINCE),
        _ => false,
    }
}

/// Returns a future that keeps the state current and never completes. `namespaces`: whether to watch the annotations of
/// namespaces. From this call on, `readiness` reports each resource that it waits for as missing until it has been listed.
pub fn watch(
    client: Client,
    cluster_state: ClusterState,
    namespaces: bool,
    readiness: &Readiness,
) -> impl Future<Output = ()> + use<> {
    let nodes = (cluster_state.read(|state| state.native) == Native::Auto).then(|| {
        let version = |node: Node| node.status.and_then(|s| s.node_info).is_some_and(|i| is_native(&i.kubelet_version));
        let (list, api) = (WatchedResource::new("nodes", readiness), Api::<Node>::all(client.clone()));
        list.watch_list(api, cluster_state.clone(), |state| &mut state.nodes, version)
    });
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("networking.istio.io", "v1beta1", "ProxyConfig"));
    let configs = Api::<DynamicObject>::all_with(client.clone(), &resource);
    let value = |object: DynamicObject| Arc::new(serde_json::to_value(object).unwrap_or_default());
    let list = WatchedResource::new("proxyconfigs", readiness);
    let proxy_configs = list.watch_list(configs, cluster_state.clone(), |state| &mut state.proxy_configs, value);
    let classes = watcher(Api::<RuntimeClass>::all(client.clone()), pages()).default_backoff();
    let known = cluster_state.clone();
    let sandboxes = watch_list("runtimeclasses", classes, move |event| {
        known.read(|state| state.sandboxes.apply(event, |class: RuntimeClass| is_sandbox(&class.handler)));
    });
    let annotations = namespaces.then(|| {
        let annotated = |object: Namespace| Arc::new(object.metadata.annotations.unwrap_or_default());
        let (list, api) = (WatchedResource::new("namespaces", readiness), Api::<Namespace>::all(client));
        list.watch_list(api, cluster_state, |state| &mut state.annotations, annotated)
    });
    async {
        tokio::join!(OptionFuture::from(nodes), proxy_configs, sandboxes, OptionFuture::from(annotations));
    }
}

/// A watched resource without which the server is not ready.
struct WatchedResource {
    what: &'static str,
    readiness: Readiness,
}

impl WatchedResource {
    fn new(what: &'static str, readiness: &Readiness) -> Self {
        readiness.missing(what, "they have not been listed yet");
        Self { what, readiness: readiness.clone() }
    }

    async fn watch_list<K, T>(
        self,
        api: Api<K>,
        cluster_state: ClusterState,
        cache: impl Fn(&mut State) -> &mut WatchCache<T>,
        value_of: impl Fn(K) -> T,
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let events = watcher(api, pages()).default_backoff().inspect(|event| match event {
            Err(error) if is_absent(error) => {
                cluster_state.read(|state| _ = cache(state).values.get_or_insert_default());
                self.readiness.ready(self.what);
            }
            Err(error) if cluster_state.read(|state| cache(state).values.is_none()) => {
                self.readiness.missing(self.what, format!("they cannot be listed: {error}"));
            }
            _ => {}
        });
        watch_list(self.what, events, |event| {
            cluster_state.read(|state| cache(state).apply(event, &value_of));
            if cluster_state.read(|state| cache(state).values.is_some()) {
                self.readiness.ready(self.what);
            }
        })
        .await;
    }
}

/// Whether the error is that the cluster does not define the resource (404).
pub(super) fn is_absent(error: &watcher::Error) -> bool {
    let watcher::Error::InitialListFailed(kube::Error::Api(status)) = error else { return false };
    status.code == 404
}

pub(super) fn pages() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelets_version_decides_its_support_of_native_sidecars() {
        for (version, native) in
            [("v1.33.1", true), ("v1.34.0-rc.1", true), ("v2.0.0", true), ("v1.32.9", false), ("x", false), ("", false)]
        {
            assert_eq!(is_native(version), native, "{version}");
        }
    }

    #[test]
    fn one_old_node_disables_native_sidecars() {
        let node = |name: &str, version: &str| {
            serde_json::from_value::<Node>(serde_json::json!({ "metadata": { "name": name },
                "status": { "nodeInfo": { "kubeletVersion": version } } }))
            .unwrap()
        };
        let cluster_state = ClusterState::new(Native::Auto);
        let learn = |event: Event<Node>| {
            cluster_state.read(|state| {
                state.nodes.apply(event, |node| {
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
