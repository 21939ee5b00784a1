//! A cache of this node's pods: the fields on which redirection depends ([`PodFacts`]). A lookup waits for a pod that
//! the watch has not delivered yet.
//!
//! [`Store`] is pure; [`Cache`] shares it between tasks. During an outage of the API server the last known fields are
//! served.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use podfacts::{PodFacts, PodName};

/// An event of the watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A list of the node's pods starts. Known pods stay in the store until the list is complete.
    ListStarted,
    /// A pod of the list.
    Listed(PodName, PodFacts),
    /// The list is complete: pods that it did not contain are deleted.
    ListDone,
    /// A pod was created or changed.
    Applied(PodName, PodFacts),
    /// A pod was deleted or has ended.
    Deleted(PodName),
}

/// The pods of the node, as far as the watch has delivered them.
#[derive(Debug, Default)]
pub struct Store {
    pods: HashMap<PodName, PodFacts>,
    /// Whether a list has been completed.
    synced: bool,
    /// Known pods that the current list has not contained so far.
    unlisted: HashSet<PodName>,
}

/// The result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// The pod was in the cache.
    Hit(PodFacts),
    /// The watch delivered the pod during the lookup.
    Waited(PodFacts),
    /// The cache has a pod of this name, but with another UID.
    OtherUid(PodFacts),
    /// The node has no such pod.
    Unknown,
    /// No list has been completed yet.
    NotSynced,
}

impl Lookup {
    /// Returns the result's name as a metric label.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Hit(_) => "hit",
            Self::Waited(_) => "waited",
            Self::OtherUid(_) => "other_uid",
            Self::Unknown => "unknown",
            Self::NotSynced => "unfilled",
        }
    }
}

impl Store {
    /// Applies an event.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::ListStarted => self.unlisted = self.pods.keys().cloned().collect(),
            Change::Listed(pod, facts) | Change::Applied(pod, facts) => {
                self.unlisted.remove(&pod);
                self.pods.insert(pod, facts);
            }
            Change::ListDone => {
                for pod in std::mem::take(&mut self.unlisted) {
                    self.pods.remove(&pod);
                }
                self.synced = true;
            }
            Change::Deleted(pod) => {
                self.pods.remove(&pod);
            }
        }
    }

    /// Whether the store has a pod of this name.
    pub fn has(&self, pod: &PodName) -> bool {
        self.pods.contains_key(pod)
    }

    /// Returns the UID of the pod of this name.
    pub fn uid(&self, pod: &PodName) -> Option<&str> {
        self.pods.get(pod).map(|facts| facts.uid.as_str())
    }

    /// Returns the facts of the pod of this name and UID.
    pub fn facts(&self, pod: &PodName, uid: &str) -> Option<&PodFacts> {
        self.find(pod, Some(uid))
    }

    /// Iterates over the pods, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&PodName, &PodFacts)> {
        self.pods.iter()
    }

    pub fn len(&self) -> usize {
        self.pods.len()
    }

    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Whether a list has been completed, like client-go's `HasSynced`.
    pub fn has_synced(&self) -> bool {
        self.synced
    }

    fn find(&self, pod: &PodName, uid: Option<&str>) -> Option<&PodFacts> {
        self.pods.get(pod).filter(|facts| uid.is_none_or(|uid| uid == facts.uid))
    }

    /// Returns why [`Self::find`] did not find a pod.
    fn miss(&self, pod: &PodName) -> Lookup {
        match self.pods.get(pod) {
            Some(facts) => Lookup::OtherUid(facts.clone()),
            None if self.synced => Lookup::Unknown,
            None => Lookup::NotSynced,
        }
    }
}

/// A [`Store`] that the watch updates and many tasks read; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Cache(Arc<watch::Sender<Store>>);

impl Cache {
    /// Applies an event and wakes waiting lookups.
    pub fn apply(&self, change: Change) {
        self.0.send_modify(|store| store.apply(change));
    }

    /// Calls `look` with the store.
    pub fn read<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        look(&self.0.borrow())
    }

    /// Returns once a list has been completed.
    pub async fn synced(&self) {
        // `self` owns the sender, so the channel is open.
        let _ = self.0.subscribe().wait_for(Store::has_synced).await;
    }

    /// Looks a pod up and waits up to `limit` for it: the runtime often starts a pod before the watch delivers it, and
    /// a pod of the same name with another UID is about to be replaced.
    pub async fn lookup(&self, pod: &PodName, uid: Option<&str>, limit: Duration) -> Lookup {
        if let Some(facts) = self.0.borrow().find(pod, uid) {
            return Lookup::Hit(facts.clone());
        }
        let mut changes = self.0.subscribe();
        let came = timeout(limit, changes.wait_for(|store| store.find(pod, uid).is_some())).await;
        let store = match came {
            Ok(Ok(store)) => store,
            // A closed channel is impossible: `self` owns the sender.
            Ok(Err(_)) | Err(_) => self.0.borrow(),
        };
        store.find(pod, uid).map_or_else(|| store.miss(pod), |facts| Lookup::Waited(facts.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(1);

    fn name(name: &str) -> PodName {
        PodName { namespace: "shop".into(), name: name.into() }
    }

    fn facts(uid: &str) -> PodFacts {
        PodFacts { uid: uid.into(), ..PodFacts::default() }
    }

    fn synced(pods: &[(&str, &str)]) -> Cache {
        let cache = Cache::default();
        cache.apply(Change::ListStarted);
        for (pod, uid) in pods {
            cache.apply(Change::Listed(name(pod), facts(uid)));
        }
        cache.apply(Change::ListDone);
        cache
    }

    #[tokio::test]
    async fn each_result_is_reported() {
        let cache = Cache::default();
        assert_eq!(cache.lookup(&name("web"), None, SHORT).await, Lookup::NotSynced);
        cache.apply(Change::ListStarted);
        cache.apply(Change::Listed(name("web"), facts("1")));
        assert_eq!(cache.lookup(&name("web"), Some("1"), SHORT).await, Lookup::Hit(facts("1")));
        assert_eq!(cache.lookup(&name("db"), None, SHORT).await, Lookup::NotSynced);
        cache.apply(Change::ListDone);
        assert_eq!(cache.lookup(&name("db"), None, SHORT).await, Lookup::Unknown);
        assert_eq!(cache.lookup(&name("web"), Some("2"), SHORT).await, Lookup::OtherUid(facts("1")));
        assert_eq!(cache.lookup(&name("web"), None, SHORT).await, Lookup::Hit(facts("1")));
    }

    #[tokio::test]
    async fn a_lookup_waits_for_its_pod_and_ignores_others() {
        let cache = synced(&[("web", "1")]);
        let pod = name("web");
        let lookup = cache.lookup(&pod, Some("2"), LONG);
        let changes = async {
            cache.apply(Change::Applied(name("db"), facts("2")));
            cache.apply(Change::Deleted(name("web")));
            tokio::task::yield_now().await;
            cache.apply(Change::Applied(name("web"), facts("2")));
        };
        assert_eq!(tokio::join!(lookup, changes).0, Lookup::Waited(facts("2")));
    }

    #[tokio::test]
    async fn pods_of_the_first_list_stay_until_the_second_is_complete() {
        let cache = synced(&[("web", "1"), ("db", "2")]);
        cache.apply(Change::ListStarted);
        cache.apply(Change::Listed(name("db"), facts("2")));
        cache.apply(Change::Applied(name("new"), facts("3")));
        assert_eq!(cache.lookup(&name("web"), None, SHORT).await, Lookup::Hit(facts("1")));
        cache.apply(Change::ListDone);
        assert_eq!(cache.lookup(&name("web"), None, SHORT).await, Lookup::Unknown);
        assert_eq!(cache.read(Store::len), 2);
    }

    #[test]
    fn a_pod_that_is_deleted_during_a_list_is_removed() {
        let cache = synced(&[("web", "1")]);
        cache.apply(Change::ListStarted);
        cache.apply(Change::Deleted(name("web")));
        cache.apply(Change::ListDone);
        assert!(cache.read(Store::is_empty));
    }
}
