//! The status annotation, which lists the injected items.

use std::collections::HashSet;

use contract::annotation;
use gotemplate::Budget;
use serde_json::{Map, Value, json};

use super::{Error, recorded};
use crate::pod::{self, CONTAINERS, IMAGE_PULL_SECRETS, INIT_CONTAINERS, VOLUMES};

/// The names of the items that an earlier injection added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) init_containers: Vec<String>,
    pub(super) containers: Vec<String>,
    pub(super) volumes: Vec<String>,
    pub(super) image_pull_secrets: Vec<String>,
    /// Whether a legacy template injected the pod: its status has the template's version, while that of later releases has the revision.
    pub(super) is_legacy: bool,
    /// The [digest](super::digest) of the settings; `None` if another injector or `kube-inject` injected the pod.
    pub(super) settings: Option<String>,
    /// What is needed besides the names to restore the pod before the injection; `None` if nothing is.
    pub(super) record: Option<Record>,
}

/// What an injection changed in a pod beyond the items that the status names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// The overlay that restores the pod before the injection.
    pub(super) before: Value,
    /// The values that the overlay replaces: any other value has changed since and stays. `None` in the status of an earlier release, whose
    /// overlay replaces any value.
    pub(super) written: Option<Value>,
}

impl Record {
    fn of(status: &Value) -> Option<Self> {
        let (before, written) = (status.get(BEFORE).cloned(), status.get(WRITTEN).cloned());
        let is_present = before.is_some() || written.is_some();
        is_present.then(|| Self { before: before.unwrap_or_else(|| Map::new().into()), written })
    }
}

impl Status {
    /// Parses the status of a pod; `None` if it is absent.
    ///
    /// # Errors
    /// The annotation is not one that an injection writes, or the budget is spent.
    pub(super) fn of(pod: &Value, budget: &mut Budget) -> Result<Option<Self>, Error> {
        let Some(status) = recorded::map(pod, annotation::STATUS, budget)?? else { return Ok(None) };
        let names = |key| recorded::names(&status, annotation::STATUS, key);
        for key in [BEFORE, WRITTEN] {
            recorded::member(&status, annotation::STATUS, key, Value::is_object, "a map")?;
        }
        recorded::member(&status, annotation::STATUS, SETTINGS, Value::is_string, "a text")?;
        Ok(Some(Self {
            init_containers: names(INIT_CONTAINERS)?,
            containers: names(CONTAINERS)?,
            volumes: names(VOLUMES)?,
            image_pull_secrets: names(IMAGE_PULL_SECRETS)?,
            is_legacy: status.get(VERSION).is_some() && status.get(REVISION).is_none(),
            settings: status.get(SETTINGS).and_then(Value::as_str).map(str::to_owned),
            record: Record::of(&status),
        }))
    }

    /// Returns the names of the injected containers in `which`.
    pub(super) fn containers_of(&self, which: &str) -> &[String] {
        if which == INIT_CONTAINERS { &self.init_containers } else { &self.containers }
    }

    /// Whether the status has no names.
    pub(super) fn is_empty(&self) -> bool {
        self.lists().into_iter().all(|(_, names)| names.is_empty())
    }

    /// Returns the names by list.
    pub(super) fn lists(&self) -> [(&'static str, &Vec<String>); 4] {
        [
            (INIT_CONTAINERS, &self.init_containers),
            (CONTAINERS, &self.containers),
            (VOLUMES, &self.volumes),
            (IMAGE_PULL_SECRETS, &self.image_pull_secrets),
        ]
    }

    /// Returns a pod with the names of the injected items.
    pub(super) fn template_pod(&self) -> Value {
        let items = |names: &[String]| names.iter().map(|name| json!({"name": name})).collect::<Value>();
        let lists = self.lists().into_iter().map(|(which, names)| (which.to_owned(), items(names)));
        json!({"spec": Value::Object(lists.collect())})
    }

    /// Whether `template_pod` has all items of the status.
    pub(super) fn is_within(&self, template_pod: &Value) -> bool {
        self.lists().into_iter().all(|(which, names)| {
            let present: HashSet<&str> = pod::list(pod::spec(template_pod), which).iter().map(pod::name).collect();
            names.iter().all(|name| present.contains(name.as_str()))
        })
    }
}

/// The member with the template's digest, in the status of Istio up to 1.8.
pub(super) const VERSION: &str = "version";
const REVISION: &str = "revision";

// Members of the annotation that Istio's injector neither writes nor reads.
const SETTINGS: &str = "settings";
const BEFORE: &str = "before";
const WRITTEN: &str = "written";

/// The lists in the annotation.
const LISTS: [&str; 4] = [INIT_CONTAINERS, CONTAINERS, VOLUMES, IMAGE_PULL_SECRETS];

/// Reduces an overlay to the names of its items and the directives of the merge. Merging this outline instead of the
/// overlay gives the same names in [`LISTS`].
pub(super) fn outline(overlay: &Value) -> Value {
    let item = |item: &Value| filtered(item, |key| key == "name", Value::clone);
    let list = |list: &Value| match list {
        Value::Array(items) => items.iter().map(item).collect(),
        other => other.clone(),
    };
    let spec = |spec: &Value| filtered(spec, |key| LISTS.contains(&key), list);
    filtered(overlay, |key| key == "spec", spec)
}

/// Returns a map of the members whose keys are `wanted`, converted by `part`, and of the directives of the merge.
fn filtered(value: &Value, wanted: impl Fn(&str) -> bool, part: impl Fn(&Value) -> Value) -> Value {
    let Value::Object(members) = value else { return value.clone() };
    let kept = members.iter().filter(|(key, _)| key.starts_with('$') || wanted(key));
    let parted = |(key, value): (&String, &Value)| (key.clone(), if wanted(key) { part(value) } else { value.clone() });
    Value::Object(kept.map(parted).collect())
}

/// Returns the annotation's value for the items of `template_pod`. `settings`: the digest of the settings. `record`: see [`Status`].
pub(super) fn describe(
    template_pod: &Value,
    revision: &str,
    settings: Option<&str>,
    record: Option<&Record>,
) -> String {
    let names = |key: &str| match pod::list(pod::spec(template_pod), key) {
        [] => Value::Null,
        items => items.iter().map(pod::name).collect(),
    };
    let mut status: Map<String, Value> = LISTS.iter().map(|key| ((*key).to_owned(), names(key))).collect();
    status.insert(REVISION.to_owned(), if revision.is_empty() { "default" } else { revision }.into());
    status.extend(settings.map(|digest| (SETTINGS.to_owned(), digest.into())));
    status.extend(record.map(|record| (BEFORE.to_owned(), record.before.clone())));
    status.extend(record.and_then(|record| Some((WRITTEN.to_owned(), record.written.clone()?))));
    Value::Object(status).to_string()
}
