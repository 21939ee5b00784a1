//! The enrolled pods, from which snapshots are made. Pure.
//!
//! `N` is a netns; two are equal if they are the same namespace. A pod's netns stays open as long as its entry does,
//! and also while a request with it waits to be sent.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::message::{Request, Uid, Workload};

/// An enrolled pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolled<N> {
    pub workload: Workload,
    pub netns: N,
}

/// The enrolled pods by UID. A pod whose netns has not been found yet has no value.
#[derive(Debug)]
pub struct Registry<N> {
    pods: BTreeMap<Uid, Option<Enrolled<N>>>,
}

impl<N> Default for Registry<N> {
    fn default() -> Self {
        Self { pods: BTreeMap::new() }
    }
}

impl<N: Clone + PartialEq> Registry<N> {
    /// Records that a pod is enrolled. Until its netns is known, snapshots contain a [`Request::Keep`] for the pod,
    /// with which ztunnel keeps the pod's proxy.
    pub fn ensure(&mut self, uid: &Uid) {
        self.pods.entry(uid.clone()).or_insert(None);
    }

    /// Records a pod with its netns and returns the request that adds it. If the recorded netns is the same namespace,
    /// it stays and the new descriptor is dropped.
    pub fn upsert(&mut self, uid: &Uid, pod: Enrolled<N>) -> Request<N> {
        let pod = match self.pods.entry(uid.clone()) {
            Entry::Occupied(entry) => {
                let recorded = entry.into_mut();
                let netns = match recorded.take() {
                    Some(former) if former.netns == pod.netns => former.netns,
                    _ => pod.netns,
                };
                recorded.insert(Enrolled { netns, ..pod })
            }
            Entry::Vacant(entry) => entry.insert(None).insert(pod),
        };
        add(uid, pod)
    }

    /// Removes a pod and returns it if its netns was known.
    pub fn take(&mut self, uid: &Uid) -> Option<Enrolled<N>> {
        self.pods.remove(uid).flatten()
    }

    pub fn get(&self, uid: &Uid) -> Option<&Enrolled<N>> {
        self.pods.get(uid)?.as_ref()
    }

    /// Returns the request that adds a pod, if the pod's netns is known.
    pub fn request(&self, uid: &Uid) -> Option<Request<N>> {
        self.get(uid).map(|pod| add(uid, pod))
    }

    /// Whether the pod is still enrolled in the netns of a request.
    pub fn is_current(&self, request: &Request<N>) -> bool {
        let recorded = request.uid().and_then(|uid| self.get(uid)).map(|pod| &pod.netns);
        recorded.is_some() && recorded == request.netns()
    }

    /// Returns the number of enrolled pods, and how many of these have an unknown netns.
    pub fn counts(&self) -> (usize, usize) {
        (self.pods.len(), self.pods.values().filter(|pod| pod.is_none()).count())
    }

    /// Returns the requests that a new ztunnel gets first: one for each pod, and the end of the snapshot.
    pub fn snapshot(&self) -> Vec<Request<N>> {
        let pods = self.pods.iter().map(|(uid, pod)| match pod {
            Some(pod) => add(uid, pod),
            None => Request::Keep { uid: uid.clone() },
        });
        pods.chain([Request::SnapshotSent]).collect()
    }
}

fn add<N: Clone>(uid: &Uid, pod: &Enrolled<N>) -> Request<N> {
    Request::Add { uid: uid.clone(), workload: pod.workload.clone(), netns: pod.netns.clone() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A netns: its namespace, and a value that distinguishes two descriptors of the same namespace.
    #[derive(Debug, Clone)]
    struct Netns(u32, Arc<str>);

    impl PartialEq for Netns {
        fn eq(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }

    fn pod(account: &str, netns: u32, opened: &str) -> Enrolled<Netns> {
        let workload = Workload::new("shop", "web-0", account).unwrap();
        Enrolled { workload, netns: Netns(netns, opened.into()) }
    }

    fn uid(text: &str) -> Uid {
        Uid::new(text).unwrap()
    }

    fn opened(registry: &Registry<Netns>) -> Option<(String, String)> {
        registry.get(&uid("u1")).map(|pod| (pod.workload.names().service_account.clone(), pod.netns.1.to_string()))
    }

    #[test]
    fn the_same_netns_stays_and_another_one_replaces_it() {
        let mut registry = Registry::default();
        registry.upsert(&uid("u1"), pod("a", 1, "first"));
        let again = pod("b", 1, "second");
        let descriptor = Arc::downgrade(&again.netns.1);
        let request = registry.upsert(&uid("u1"), again);
        assert_eq!(opened(&registry), Some(("b".into(), "first".into())));
        assert_eq!(
            (request.netns().map(|netns| netns.1.to_string()), descriptor.upgrade()),
            (Some("first".into()), None)
        );
        registry.upsert(&uid("u1"), pod("b", 2, "third"));
        assert_eq!(opened(&registry), Some(("b".into(), "third".into())));
        assert!(!registry.is_current(&request), "the request names the former netns");
        // After a restart of the agent, a pod is recorded without its netns first. This must not remove a recorded
        // netns.
        registry.ensure(&uid("u1"));
        assert_eq!(opened(&registry), Some(("b".into(), "third".into())));
    }

    #[test]
    fn a_pod_is_removed_once() {
        let mut registry = Registry::default();
        let request = registry.upsert(&uid("u1"), pod("a", 1, "first"));
        registry.ensure(&uid("u2"));
        assert!(registry.is_current(&request));
        assert_eq!(registry.counts(), (2, 1));
        assert_eq!(registry.take(&uid("u1")).map(|pod| pod.netns.1.to_string()), Some("first".into()));
        assert!(!registry.is_current(&request));
        assert_eq!((registry.take(&uid("u1")), registry.take(&uid("u2")), registry.counts()), (None, None, (0, 0)));
    }

    #[test]
    fn a_snapshot_names_each_pod_and_ends() {
        let mut registry = Registry::default();
        registry.ensure(&uid("u2"));
        let added = registry.upsert(&uid("u1"), pod("a", 1, "first"));
        let keep = Request::Keep { uid: uid("u2") };
        assert_eq!(registry.snapshot(), [added, keep, Request::SnapshotSent]);
        assert_eq!(Registry::<Netns>::default().snapshot(), [Request::SnapshotSent]);
    }
}
