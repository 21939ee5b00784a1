//! The facts of this node's pods, and waiting for those that the watch has not shown yet.
//!
//! [`Store`] is plain and knows no time; [`Cache`] shares it. What the API server said last is served for as long as it is
//! away.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::pod::{PodFacts, PodName};

/// What the watch tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A list begins. What is known stays until it ends.
    ListBegins,
    /// One of the list's pods.
    Listed(PodName, PodFacts),
    /// The list has ended: other pods are gone.
    ListEnds,
    /// A pod is new or has changed.
    Applied(PodName, PodFacts),
    /// A pod is gone.
    Gone(PodName),
}

/// All pods of the node.
#[derive(Debug, Default)]
pub struct Store {
    pods: HashMap<PodName, PodFacts>,
    /// A list has been complete at some time.
    filled: bool,
    /// Pods that the list under way has not shown yet.
    unseen: HashSet<PodName>,
}

/// What a lookup gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// The pod was there.
    Hit(PodFacts),
    /// The pod came while it was waited for.
    Waited(PodFacts),
    /// There is another pod of this name, still.
    OtherUid(PodFacts),
    /// There is no such pod.
    Unknown,
    /// Nobody knows yet which pods there are.
    Unfilled,
}

impl Lookup {
    /// Metric label.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Hit(_) => "hit",
            Self::Waited(_) => "waited",
            Self::OtherUid(_) => "other_uid",
            Self::Unknown => "unknown",
            Self::Unfilled => "unfilled",
        }
    }
}

impl Store {
    /// Takes over what has happened.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::ListBegins => self.unseen = self.pods.keys().cloned().collect(),
            Change::Listed(pod, facts) | Change::Applied(pod, facts) => {
                self.unseen.remove(&pod);
                self.pods.insert(pod, facts);
            }
            Change::ListEnds => {
                for pod in std::mem::take(&mut self.unseen) {
                    self.pods.remove(&pod);
                }
                self.filled = true;
            }
            Change::Gone(pod) => {
                self.pods.remove(&pod);
            }
        }
    }

    /// Whether a pod of this name is known.
    pub fn has(&self, pod: &PodName) -> bool {
        self.pods.contains_key(pod)
    }

    /// How many pods are known.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Whether no pod is known.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Whether a list has been complete.
    pub fn is_filled(&self) -> bool {
        self.filled
    }

    fn find(&self, pod: &PodName, uid: Option<&str>) -> Option<&PodFacts> {
        self.pods.get(pod).filter(|facts| uid.is_none_or(|uid| uid == facts.uid))
    }

    /// The best that can be said of a pod that is not [`Self::find`]'s.
    fn miss(&self, pod: &PodName) -> Lookup {
        match self.pods.get(pod) {
            Some(facts) => Lookup::OtherUid(facts.clone()),
            None if self.filled => Lookup::Unknown,
            None => Lookup::Unfilled,
        }
    }
}

/// A [`Store`] that the watch fills and many ask; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Cache(Arc<watch::Sender<Store>>);

impl Cache {
    /// Takes over a change; whoever waits looks again.
    pub fn apply(&self, change: Change) {
        self.0.send_modify(|store| store.apply(change));
    }

    /// Shows the store.
    pub fn read<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        look(&self.0.borrow())
    }

    /// Returns once a list has been complete.
    pub async fn filled(&self) {
        // The sender is in `self` and cannot be gone.
        let _ = self.0.subscribe().wait_for(Store::is_filled).await;
    }

    /// A pod, or what can be said of it once `patience` has passed: the runtime often asks before the watch tells, and a
    /// namesake with another UID is about to be replaced.
    pub async fn lookup(&self, pod: &PodName, uid: Option<&str>, patience: Duration) -> Lookup {
        if let Some(facts) = self.0.borrow().find(pod, uid) {
            return Lookup::Hit(facts.clone());
        }
        let mut changes = self.0.subscribe();
        let came = timeout(patience, changes.wait_for(|store| store.find(pod, uid).is_some())).await;
        let store = match came {
            Ok(Ok(store)) => store,
            // The sender is in `self` and cannot be gone.
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

    fn filled(pods: &[(&str, &str)]) -> Cache {
        let cache = Cache::default();
        cache.apply(Change::ListBegins);
        for (pod, uid) in pods {
            cache.apply(Change::Listed(name(pod), facts(uid)));
        }
        cache.apply(Change::ListEnds);
        cache
    }

    #[tokio::test]
    async fn every_outcome_has_its_name() {
        let cache = Cache::default();
        assert_eq!(cache.lookup(&name("web"), None, SHORT).await, Lookup::Unfilled);
        cache.apply(Change::ListBegins);
        cache.apply(Change::Listed(name("web"), facts("1")));
        assert_eq!(cache.lookup(&name("web"), Some("1"), SHORT).await, Lookup::Hit(facts("1")));
        assert_eq!(cache.lookup(&name("db"), None, SHORT).await, Lookup::Unfilled);
        cache.apply(Change::ListEnds);
        assert_eq!(cache.lookup(&name("db"), None, SHORT).await, Lookup::Unknown);
        assert_eq!(cache.lookup(&name("web"), Some("2"), SHORT).await, Lookup::OtherUid(facts("1")));
        assert_eq!(cache.lookup(&name("web"), None, SHORT).await, Lookup::Hit(facts("1")));
    }

    #[tokio::test]
    async fn who_waits_wakes_with_the_pod_and_with_no_other() {
        let cache = filled(&[("web", "1")]);
        let pod = name("web");
        let asked = cache.lookup(&pod, Some("2"), LONG);
        let told = async {
            cache.apply(Change::Applied(name("db"), facts("2")));
            cache.apply(Change::Gone(name("web")));
            tokio::task::yield_now().await;
            cache.apply(Change::Applied(name("web"), facts("2")));
        };
        assert_eq!(tokio::join!(asked, told).0, Lookup::Waited(facts("2")));
    }

    #[tokio::test]
    async fn a_second_list_serves_the_first_until_its_end() {
        let cache = filled(&[("web", "1"), ("db", "2")]);
        cache.apply(Change::ListBegins);
        cache.apply(Change::Listed(name("db"), facts("2")));
        cache.apply(Change::Applied(name("new"), facts("3")));
        assert_eq!(cache.lookup(&name("web"), None, SHORT).await, Lookup::Hit(facts("1")));
        cache.apply(Change::ListEnds);
        assert_eq!(cache.lookup(&name("web"), None, SHORT).await, Lookup::Unknown);
        assert_eq!(cache.read(Store::len), 2);
    }

    #[test]
    fn a_pod_that_goes_during_a_list_is_gone() {
        let cache = filled(&[("web", "1")]);
        cache.apply(Change::ListBegins);
        cache.apply(Change::Gone(name("web")));
        cache.apply(Change::ListEnds);
        assert!(cache.read(Store::is_empty));
    }
}
