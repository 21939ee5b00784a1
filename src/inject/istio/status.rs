//! The annotation by which a pod remembers what was injected.

use serde_json::{Map, Value};

use crate::contract::annotation;
use crate::inject::pod::{self, CONTAINERS, IMAGE_PULL_SECRETS, INIT_CONTAINERS, VOLUMES};

/// What an earlier injection added, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) init_containers: Vec<String>,
    pub(super) containers: Vec<String>,
    pub(super) volumes: Vec<String>,
    pub(super) image_pull_secrets: Vec<String>,
}

impl Status {
    /// The status that a pod carries, if it can be read.
    pub(super) fn of(pod: &Value) -> Option<Self> {
        let status: Value = serde_json::from_str(pod::annotation(pod, annotation::STATUS)?).ok()?;
        let names =
            |key: &str| pod::list(&status, key).iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
        status.is_object().then(|| Self {
            init_containers: names(INIT_CONTAINERS),
            containers: names(CONTAINERS),
            volumes: names(VOLUMES),
            image_pull_secrets: names(IMAGE_PULL_SECRETS),
        })
    }

    /// The names under which one of the two lists of containers was filled.
    pub(super) fn containers_of(&self, which: &str) -> &[String] {
        if which == INIT_CONTAINERS { &self.init_containers } else { &self.containers }
    }

    /// Whether nothing was added.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The lists whose names the annotation holds.
const LISTS: [&str; 4] = [INIT_CONTAINERS, CONTAINERS, VOLUMES, IMAGE_PULL_SECRETS];

/// What of an overlay tells names: merged in the overlay's place, it makes a pod in which [`LISTS`] have the same ones.
pub(super) fn outline(overlay: &Value) -> Value {
    let item = |item: &Value| kept(item, |key| key == "name", Value::clone);
    let list = |list: &Value| match list {
        Value::Array(items) => items.iter().map(item).collect(),
        other => other.clone(),
    };
    let spec = |spec: &Value| kept(spec, |key| LISTS.contains(&key), list);
    kept(overlay, |key| key == "spec", spec)
}

/// The members that are wanted, and those that direct the merging.
fn kept(value: &Value, wanted: impl Fn(&str) -> bool, part: impl Fn(&Value) -> Value) -> Value {
    let Value::Object(members) = value else { return value.clone() };
    let kept = members.iter().filter(|(key, _)| key.starts_with('$') || wanted(key));
    let parted = |(key, value): (&String, &Value)| (key.clone(), if wanted(key) { part(value) } else { value.clone() });
    Value::Object(kept.map(parted).collect())
}

/// The annotation's value for what the templates made.
pub(super) fn describe(template_pod: &Value, revision: &str) -> String {
    let names = |key: &str| match pod::list(pod::spec(template_pod), key) {
        [] => Value::Null,
        items => items.iter().map(pod::name).collect(),
    };
    let mut status: Map<String, Value> = LISTS.iter().map(|key| ((*key).to_owned(), names(key))).collect();
    status.insert("revision".to_owned(), if revision.is_empty() { "default" } else { revision }.into());
    Value::Object(status).to_string()
}
