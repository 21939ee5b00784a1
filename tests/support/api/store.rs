//! Objects with versions, and the history that watches resume from.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::answer::Failure;
use super::watch::Watch;

/// Where an object is kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) resource: String,
    /// Empty for those of the cluster.
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Key {
    pub(super) fn new(resource: &str, namespace: &str, name: &str) -> Self {
        Self { resource: resource.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// By `kind` and metadata; kinds whose plural is not made by an `s` are none that a test needs.
    pub(super) fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let resource = format!("{}s", text(&object["kind"]).to_lowercase());
        let metadata = &object["metadata"];
        Self { resource, namespace: text(&metadata["namespace"]), name: text(&metadata["name"]) }
    }
}

/// What happened to an object.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) before: Option<Value>,
    pub(super) after: Option<Value>,
}

/// All objects of the cluster.
#[derive(Default)]
pub(super) struct Store {
    objects: BTreeMap<Key, Value>,
    revision: u64,
    history: Vec<Change>,
    /// Watches cannot resume from before it.
    oldest: u64,
    watches: Vec<Watch>,
}

impl Store {
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Value> {
        self.objects.get(key)
    }

    pub(super) fn known(&self, key: &Key) -> Result<&Value, Failure> {
        self.get(key).ok_or_else(|| Failure::no_object(&key.resource, &key.name))
    }

    pub(super) fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<&Value> {
        let wanted = |key: &Key| key.resource == resource && namespace.is_none_or(|wanted| key.namespace == wanted);
        self.objects.iter().filter(|(key, _)| wanted(key)).map(|(_, object)| object).collect()
    }

    /// Stores with a new version; uid and creation are given where they are missing.
    pub(super) fn put(&mut self, key: Key, mut object: Value) -> Value {
        self.revision += 1;
        let before = self.objects.get(&key).cloned();
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(self.revision.to_string());
        if metadata["uid"].is_null() {
            let known = before.as_ref().map(|object| object["metadata"]["uid"].clone());
            metadata["uid"] = known.unwrap_or_else(|| json!(format!("uid-{}", self.revision)));
        }
        if metadata["creationTimestamp"].is_null() {
            metadata["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        self.objects.insert(key.clone(), object.clone());
        self.tell(key, before, Some(object.clone()));
        object
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Value> {
        let mut object = self.objects.remove(key)?;
        self.revision += 1;
        let before = object.clone();
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.tell(key.clone(), Some(before), None);
        Some(object)
    }

    fn tell(&mut self, key: Key, before: Option<Value>, after: Option<Value>) {
        let Key { resource, namespace, .. } = key;
        let change = Change { revision: self.revision, resource, namespace, before, after };
        self.watches.retain(|watch| watch.tell(&change));
        self.history.push(change);
    }

    /// What a watch that knows `revision` has missed; `None` where that is forgotten.
    pub(super) fn since(&self, revision: u64) -> Option<impl Iterator<Item = &Change>> {
        (revision >= self.oldest).then(|| self.history.iter().filter(move |change| change.revision > revision))
    }

    pub(super) fn watch(&mut self, watch: Watch) {
        self.watches.push(watch);
    }

    pub(super) fn watches(&mut self, resource: &str) -> usize {
        self.watches.retain(Watch::is_open);
        self.watches.iter().filter(|watch| watch.resource == resource).count()
    }

    pub(super) fn break_watches(&mut self) {
        self.watches.clear();
    }

    pub(super) fn expire(&mut self) {
        // A version of its own, so that nobody can have seen it.
        self.revision += 1;
        self.oldest = self.revision;
        self.history.clear();
        for watch in self.watches.drain(..) {
            watch.expire();
        }
    }

    pub(super) fn bookmark(&mut self) {
        let revision = self.revision;
        self.watches.retain(|watch| watch.bookmark(revision, false));
    }
}
