//! What a cluster knows of its pods, and who has asked: the memory that the doubles of API server and agent share.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::pod::Pod;

/// The pods that can be asked for.
#[derive(Debug, Default)]
pub struct Cluster {
    pods: Mutex<BTreeMap<(String, String), Pod>>,
    asked: Mutex<Vec<String>>,
}

impl Cluster {
    /// Adds a pod, or replaces the one of that name.
    pub fn apply(&self, pod: &Pod) {
        lock(&self.pods).insert((pod.namespace.clone(), pod.name.clone()), pod.clone());
    }

    /// The pod of that name.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<Pod> {
        lock(&self.pods).get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Writes down a request: who was asked, and what.
    pub fn note(&self, who: &str, request: &str) {
        lock(&self.asked).push(format!("{who}: {request}"));
    }

    /// The requests so far, and forgets them.
    pub fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.asked))
    }
}

/// A panicking trial must not make others fail.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
