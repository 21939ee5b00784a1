//! The pods that the doubles of API server and agent share, and the requests that they have received.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::pod::Pod;

/// Pods and recorded requests.
#[derive(Debug, Default)]
pub struct Cluster {
    pods: Mutex<BTreeMap<(String, String), Pod>>,
    requests: Mutex<Vec<String>>,
}

impl Cluster {
    /// Adds a pod or replaces the pod of this name.
    pub fn apply(&self, pod: &Pod) {
        lock(&self.pods).insert((pod.namespace.clone(), pod.name.clone()), pod.clone());
    }

    /// Returns the pod of this name.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<Pod> {
        lock(&self.pods).get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Records a request to a server.
    pub fn record(&self, server: &str, request: &str) {
        lock(&self.requests).push(format!("{server}: {request}"));
    }

    /// Returns and clears the recorded requests, as `SERVER: REQUEST`.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.requests))
    }
}

/// Locks a mutex even if a thread has panicked while it held the lock: a failed trial must not fail others.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
