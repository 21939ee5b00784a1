//! Builds single patch operations: add a value, append an element, add variables or volumes.
//!
//! `operations`, `components`, `redirection` and `release_1_4_2` combine them.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;

use super::env::variable;
use super::pod::{Named, Pod};
use inject::Operation;

/// Builds the operations that add volumes to a pod.
pub(super) struct Volumes<'a> {
    there: HashSet<Cow<'a, str>>,
}

impl<'a> Volumes<'a> {
    pub(super) fn of(pod: &Pod<'a>) -> Self {
        Self { there: pod.spec.volumes.iter().map(|volume| volume.name.into()).collect() }
    }

    /// Adds the volumes that the pod lacks.
    pub(super) fn add(&mut self, volumes: Vec<Value>) -> Vec<Operation> {
        let first = self.there.is_empty();
        let mut new = Vec::new();
        for volume in volumes {
            let name = volume["name"].as_str().unwrap_or_default().to_owned();
            if self.there.insert(name.into()) {
                new.push(volume);
            }
        }
        if first && !new.is_empty() {
            return vec![add("/spec/volumes", new.into())];
        }
        new.into_iter().map(|volume| append("/spec/volumes", volume)).collect()
    }
}

/// Adds the variables that the container lacks.
pub(super) fn add_env(index: usize, present: &[Named<'_>], variables: &[(&str, &str)]) -> Vec<Operation> {
    let path = format!("/spec/containers/{index}/env");
    if present.is_empty() {
        let all: Vec<Value> = variables.iter().map(|(name, value)| variable(name, value)).collect();
        return vec![add(&path, all.into())];
    }
    let missing = variables.iter().filter(|(name, _)| present.iter().all(|there| there.name != *name));
    missing.map(|(name, value)| append(&path, variable(name, value))).collect()
}

pub(super) fn add(path: &str, value: Value) -> Operation {
    Operation::Add { path: path.to_owned(), value }
}

/// Appends to an existing list.
pub(super) fn append(list: &str, value: Value) -> Operation {
    add(&format!("{list}/-"), value)
}
