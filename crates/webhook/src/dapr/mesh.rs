//! The state of a Dapr mesh: accounts, trust, mTLS and components. `watch` updates it, each review reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use dapr::{Component, Facts, Issuer, Trust};
use serve::health::Readiness;

use crate::cluster_state::WatchCache;

/// The name of the mesh's Configuration.
pub(super) const CONFIGURATION: &str = "daprsystem";

/// The name under which this module reports its readiness.
const PART: &str = "dapr";

/// The state of a mesh; clones share it.
#[derive(Clone, Default)]
pub struct Mesh(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The newest snapshot, which reviews read without waiting for the lock.
    snapshot: ArcSwap<Snapshot>,
    readiness: Readiness,
}

/// The state from watches and files.
#[derive(Default)]
pub(super) struct State {
    /// The UIDs of the service accounts that the settings allow by name, without wildcards.
    pub(super) accounts: WatchCache<String>,
    /// Whether each Configuration enables mTLS.
    pub(super) configurations: WatchCache<bool>,
    pub(super) components: WatchCache<Option<Component>>,
    pub(super) anchors: Option<String>,
    pub(super) issuer: Option<Issuer>,
    /// Whether all parts that reviews need have been loaded once.
    complete: bool,
}

/// The state of the mesh in the form that reviews need.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    accounts: BTreeSet<String>,
    trust: Trust,
    /// The Components by namespace; `None` before the first list.
    components: Option<BTreeMap<String, Vec<Component>>>,
}

impl Mesh {
    /// Creates an empty state that is not ready until accounts, `daprsystem` and trust have been loaded once.
    pub fn new(readiness: Readiness) -> Self {
        readiness.missing(PART, State::default().missing());
        Self(Arc::new(Shared { readiness, ..Shared::default() }))
    }

    /// Creates a state with only trust anchors, in PEM, and no watches.
    pub fn trusting(anchors: String) -> Self {
        let mesh = Self::default();
        mesh.update(|state| state.anchors = Some(anchors));
        mesh
    }

    /// Updates the state and publishes a new snapshot.
    pub(super) fn update(&self, update: impl FnOnce(&mut State)) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        update(&mut state);
        self.0.snapshot.store(Arc::new(state.snapshot()));
        if state.complete {
            return;
        }
        let missing = state.missing();
        state.complete = missing.is_empty();
        if state.complete {
            self.0.readiness.ready(PART);
        } else {
            self.0.readiness.missing(PART, missing);
        }
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.0.snapshot.load_full()
    }
}

impl State {
    /// Returns a message with the parts of the state that are not loaded yet; it is empty if all are loaded.
    fn missing(&self) -> String {
        let facts = [
            ("service accounts", self.accounts.values.is_none()),
            ("the Configuration daprsystem", self.configurations.values.is_none()),
            ("the trust anchors", self.anchors.is_none()),
        ];
        let missing: Vec<&str> = facts.into_iter().filter(|(_, missing)| *missing).map(|(fact, _)| fact).collect();
        if missing.is_empty() { String::new() } else { format!("not read yet: {}", missing.join(", ")) }
    }

    fn snapshot(&self) -> Snapshot {
        let configuration = |((_, name), mtls): (&(String, String), &bool)| (name == CONFIGURATION).then_some(*mtls);
        let mtls = self.configurations.iter().find_map(configuration).unwrap_or(true);
        let trust = Trust { anchors: self.anchors.clone(), issuer: self.issuer.clone(), mtls };
        let components = self.components.values.is_some().then(|| {
            let mut all: BTreeMap<String, Vec<Component>> = BTreeMap::new();
            for ((namespace, _), component) in self.components.iter() {
                all.entry(namespace.clone()).or_default().extend(component.clone());
            }
            all
        });
        Snapshot { accounts: self.accounts.iter().map(|(_, uid)| uid.clone()).collect(), trust, components }
    }
}

impl Snapshot {
    /// Returns the state on which the review of a pod in `namespace` depends.
    pub(super) fn facts(&self, namespace: &str) -> Facts<'_> {
        let components = self.components.as_ref().map(|all| all.get(namespace).map_or(&[][..], Vec::as_slice));
        Facts { accounts: &self.accounts, trust: &self.trust, components }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ServiceAccount;
    use kube::runtime::watcher::Event;

    use super::*;

    fn account(name: &str, uid: &str) -> ServiceAccount {
        let metadata = serde_json::json!({"metadata": {"namespace": "kube-system", "name": name, "uid": uid}});
        serde_json::from_value(metadata).expect("an account")
    }

    #[test]
    fn a_recreated_account_has_another_uid() {
        let mesh = Mesh::default();
        let uid = |account: ServiceAccount| account.metadata.uid.unwrap_or_default();
        let uids = || mesh.snapshot().accounts.iter().cloned().collect::<Vec<_>>();
        mesh.update(|state| state.accounts.apply(Event::Apply(account("job-controller", "1")), uid));
        assert_eq!(uids(), ["1"]);
        mesh.update(|state| state.accounts.apply(Event::Apply(account("job-controller", "2")), uid));
        assert_eq!(uids(), ["2"]);
        mesh.update(|state| state.accounts.apply(Event::Delete(account("job-controller", "2")), uid));
        assert!(uids().is_empty());
    }

    #[test]
    fn the_mesh_is_ready_once_all_parts_were_loaded_and_stays_ready() {
        let readiness = Readiness::default();
        let mesh = Mesh::new(readiness.clone());
        let all = "dapr: not read yet: service accounts, the Configuration daprsystem, the trust anchors\n";
        assert_eq!(readiness.report().as_deref(), Some(all));
        let uid = |account: ServiceAccount| account.metadata.uid.unwrap_or_default();
        mesh.update(|state| state.accounts.apply(Event::Init, uid));
        assert_eq!(readiness.report().as_deref(), Some(all), "a list that has begun is not read");
        mesh.update(|state| state.accounts.apply(Event::InitDone, uid));
        mesh.update(|state| state.configurations.apply(Event::<ServiceAccount>::InitDone, |_| true));
        assert_eq!(readiness.report().as_deref(), Some("dapr: not read yet: the trust anchors\n"));
        mesh.update(|state| state.anchors = Some("PEM".into()));
        assert_eq!(readiness.report(), None);
        mesh.update(|state| state.anchors = None);
        assert_eq!(readiness.report(), None);
    }

    #[test]
    fn without_state_mtls_is_on_and_trust_absent() {
        let snapshot = State::default().snapshot();
        assert_eq!(snapshot.trust, Trust { anchors: None, issuer: None, mtls: true });
        assert_eq!(snapshot.facts("n").components, None);
    }
}
