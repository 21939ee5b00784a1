//! Stores objects with versions, and the history from which watches resume.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::response::Failure;
use super::select::{NODE, Query, field};
use super::watch::Watch;

/// The key of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) resource: String,
    /// Empty for cluster-scoped objects.
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Key {
    pub(super) fn new(resource: &str, namespace: &str, name: &str) -> Self {
        Self { resource: resource.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Derives the key from `kind` and metadata. The plural is the kind followed by `s` or, after an `s`, by `es`, which is right for the
    /// kinds in tests.
    pub(super) fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind = text(&object["kind"]).to_lowercase();
        let resource = format!("{kind}{}", if kind.ends_with('s') { "es" } else { "s" });
        let metadata = &object["metadata"];
        Self { resource, namespace: text(&metadata["namespace"]), name: text(&metadata["name"]) }
    }
}

/// An object and its JSON, serialized once for all lists and watches.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) object: Value,
    pub(super) json: String,
}

impl Stored {
    fn new(object: Value) -> Arc<Self> {
        let json = object.to_string();
        Arc::new(Self { object, json })
    }

    /// Returns the object with another resource version.
    fn at(&self, revision: u64) -> Arc<Self> {
        let mut object = self.object.clone();
        object["metadata"]["resourceVersion"] = json!(revision.to_string());
        Self::new(object)
    }
}

/// A change of an object.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) before: Option<Arc<Stored>>,
    pub(super) after: Option<Arc<Stored>>,
}

impl Change {
    /// Returns the object of a `DELETED` event: the last state, with the resource version of the deletion.
    pub(super) fn ended(&self) -> Option<Arc<Stored>> {
        self.before.as_ref().map(|before| before.at(self.revision))
    }
}

#[derive(Default)]
pub(super) struct Store {
    objects: BTreeMap<Key, Arc<Stored>>,
    /// The keys of the pods by node name, an index that the real API server has as well.
    bound: BTreeMap<String, BTreeSet<Key>>,
    revision: u64,
    history: Vec<Change>,
    /// The oldest version from which watches can resume.
    oldest: u64,
    watches: Vec<Watch>,
}

impl Store {
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Value> {
        self.objects.get(key).map(|stored| &stored.object)
    }

    pub(super) fn known(&self, key: &Key) -> Result<&Value, Failure> {
        self.get(key).ok_or_else(|| Failure::no_object(&key.resource, &key.name))
    }

    /// Returns the objects that a query selects, ordered by key.
    pub(super) fn list(&self, resource: &str, namespace: Option<&str>, query: &Query) -> Vec<&Stored> {
        let wanted = |key: &Key| key.resource == resource && namespace.is_none_or(|wanted| key.namespace == wanted);
        let keys: Box<dyn Iterator<Item = &Key>> = match query.node() {
            Some(node) => Box::new(self.bound.get(node).into_iter().flatten()),
            None => Box::new(self.objects.keys()),
        };
        let found = keys.filter(|key| wanted(key)).filter_map(|key| self.objects.get(key)).map(Arc::as_ref);
        found.filter(|stored| query.selects(&stored.object)).collect()
    }

    /// Stores an object with a new version, and adds a missing UID and creation time.
    pub(super) fn put(&mut self, key: Key, mut object: Value) -> Value {
        self.revision += 1;
        let before = self.objects.get(&key).cloned();
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(self.revision.to_string());
        if metadata["uid"].is_null() {
            let known = before.as_ref().map(|stored| stored.object["metadata"]["uid"].clone());
            metadata["uid"] = known.unwrap_or_else(|| json!(format!("uid-{}", self.revision)));
        }
        if metadata["creationTimestamp"].is_null() {
            metadata["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        self.unbind(&key);
        if let Some(node) = field(&object, NODE) {
            self.bound.entry(node.to_owned()).or_default().insert(key.clone());
        }
        let after = Stored::new(object.clone());
        self.objects.insert(key.clone(), after.clone());
        self.tell(key, before, Some(after));
        object
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Value> {
        self.unbind(key);
        let before = self.objects.remove(key)?;
        self.revision += 1;
        let ended = before.at(self.revision).object.clone();
        self.tell(key.clone(), Some(before), None);
        Some(ended)
    }

    fn unbind(&mut self, key: &Key) {
        let node = self.get(key).and_then(|object| field(object, NODE)).map(str::to_owned);
        if let Some(bound) = node.and_then(|node| self.bound.get_mut(&node)) {
            bound.remove(key);
        }
    }

    fn tell(&mut self, key: Key, before: Option<Arc<Stored>>, after: Option<Arc<Stored>>) {
        let Key { resource, namespace, .. } = key;
        let change = Change { revision: self.revision, resource, namespace, before, after };
        self.watches.retain(|watch| watch.tell(&change));
        self.history.push(change);
    }

    /// Returns the changes after `revision`; `None` if the history does not reach back to `revision`.
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
        // After the increment, every version that a client has seen is older than `oldest`, so no watch can resume.
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
