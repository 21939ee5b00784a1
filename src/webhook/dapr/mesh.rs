//! What is known of a Dapr mesh: accounts, trust, mTLS, components. `watch` learns it, each review reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::inject::dapr::{Component, Facts, Issuer, Trust};
use crate::serve::health::Readiness;
use crate::webhook::surroundings::Kept;

/// Name of the mesh's Configuration.
pub(super) const CONFIGURATION: &str = "daprsystem";

/// The part of readiness that is kept here.
const PART: &str = "dapr";

/// What is known of a mesh; clones share it.
#[derive(Clone, Default)]
pub struct Mesh(Arc<Shared>);

#[derive(Default)]
struct Shared {
    learned: Mutex<Learned>,
    /// What reviews read without waiting for whoever learns.
    known: ArcSwap<Known>,
    readiness: Readiness,
}

/// As it comes from watches and files.
#[derive(Default)]
pub(super) struct Learned {
    /// UIDs of the accounts that count.
    pub(super) accounts: Kept<String>,
    /// Whether a Configuration asks for mTLS.
    pub(super) configurations: Kept<bool>,
    pub(super) components: Kept<Option<Component>>,
    pub(super) anchors: Option<String>,
    pub(super) issuer: Option<Issuer>,
    /// Everything that reviews cannot do without has been read once.
    complete: bool,
}

/// As reviews need it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    accounts: BTreeSet<String>,
    trust: Trust,
    /// By namespace; absent before the first list.
    components: Option<BTreeMap<String, Vec<Component>>>,
}

impl Mesh {
    /// Nothing is known yet, and `readiness` says so until accounts, `daprsystem` and trust have been read once.
    pub fn new(readiness: Readiness) -> Self {
        readiness.missing(PART, Learned::default().unread());
        Self(Arc::new(Shared { readiness, ..Shared::default() }))
    }

    /// A mesh of which nothing is known but its trust anchors, in PEM, and nothing is watched.
    pub fn trusting(anchors: String) -> Self {
        let mesh = Self::default();
        mesh.learn(|learned| learned.anchors = Some(anchors));
        mesh
    }

    /// Learns something, and lets reviews know.
    pub(super) fn learn(&self, learn: impl FnOnce(&mut Learned)) {
        let mut learned = self.0.learned.lock().unwrap_or_else(PoisonError::into_inner);
        learn(&mut learned);
        self.0.known.store(Arc::new(learned.known()));
        if learned.complete {
            return;
        }
        let unread = learned.unread();
        learned.complete = unread.is_empty();
        if learned.complete {
            self.0.readiness.ready(PART);
        } else {
            self.0.readiness.missing(PART, unread);
        }
    }

    pub(super) fn known(&self) -> Arc<Known> {
        self.0.known.load_full()
    }
}

impl Learned {
    /// What has not been read so far, for whoever waits; empty when nothing is missing.
    fn unread(&self) -> String {
        let facts = [
            ("service accounts", self.accounts.known.is_none()),
            ("the Configuration daprsystem", self.configurations.known.is_none()),
            ("the trust anchors", self.anchors.is_none()),
        ];
        let unread: Vec<&str> = facts.into_iter().filter(|(_, missing)| *missing).map(|(fact, _)| fact).collect();
        if unread.is_empty() { String::new() } else { format!("not read yet: {}", unread.join(", ")) }
    }

    fn known(&self) -> Known {
        let configuration = |((_, name), mtls): (&(String, String), &bool)| (name == CONFIGURATION).then_some(*mtls);
        let mtls = self.configurations.iter().find_map(configuration).unwrap_or(true);
        let trust = Trust { anchors: self.anchors.clone(), issuer: self.issuer.clone(), mtls };
        let components = self.components.known.is_some().then(|| {
            let mut all: BTreeMap<String, Vec<Component>> = BTreeMap::new();
            for ((namespace, _), component) in self.components.iter() {
                all.entry(namespace.clone()).or_default().extend(component.clone());
            }
            all
        });
        Known { accounts: self.accounts.iter().map(|(_, uid)| uid.clone()).collect(), trust, components }
    }
}

impl Known {
    /// The facts for a pod in this namespace.
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
    fn an_account_that_is_made_anew_has_another_uid() {
        let mesh = Mesh::default();
        let uid = |account: ServiceAccount| account.metadata.uid.unwrap_or_default();
        let uids = || mesh.known().accounts.iter().cloned().collect::<Vec<_>>();
        mesh.learn(|learned| learned.accounts.learn(Event::Apply(account("job-controller", "1")), uid));
        assert_eq!(uids(), ["1"]);
        mesh.learn(|learned| learned.accounts.learn(Event::Apply(account("job-controller", "2")), uid));
        assert_eq!(uids(), ["2"]);
        mesh.learn(|learned| learned.accounts.learn(Event::Delete(account("job-controller", "2")), uid));
        assert!(uids().is_empty());
    }

    #[test]
    fn it_is_ready_once_everything_has_been_read_and_stays_so() {
        let readiness = Readiness::default();
        let mesh = Mesh::new(readiness.clone());
        let all = "dapr: not read yet: service accounts, the Configuration daprsystem, the trust anchors\n";
        assert_eq!(readiness.report().as_deref(), Some(all));
        let uid = |account: ServiceAccount| account.metadata.uid.unwrap_or_default();
        mesh.learn(|learned| learned.accounts.learn(Event::Init, uid));
        assert_eq!(readiness.report().as_deref(), Some(all), "a list that has begun is not read");
        mesh.learn(|learned| learned.accounts.learn(Event::InitDone, uid));
        mesh.learn(|learned| learned.configurations.learn(Event::<ServiceAccount>::InitDone, |_| true));
        assert_eq!(readiness.report().as_deref(), Some("dapr: not read yet: the trust anchors\n"));
        mesh.learn(|learned| learned.anchors = Some("PEM".into()));
        assert_eq!(readiness.report(), None);
        mesh.learn(|learned| learned.anchors = None);
        assert_eq!(readiness.report(), None);
    }

    #[test]
    fn before_anything_is_known_mtls_is_on_and_trust_absent() {
        let known = Learned::default().known();
        assert_eq!(known.trust, Trust { anchors: None, issuer: None, mtls: true });
        assert_eq!(known.facts("n").components, None);
    }
}
