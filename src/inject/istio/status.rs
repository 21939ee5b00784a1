//! The annotation by which a pod remembers what was injected.

use serde_json::{Value, json};

use crate::contract::annotation;
use crate::inject::pod::{self, CONTAINERS, INIT_CONTAINERS};

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
            volumes: names("volumes"),
            image_pull_secrets: names("imagePullSecrets"),
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

/// The annotation's value for what the templates made.
pub(super) fn describe(template_pod: &Value, revision: &str) -> String {
    let names = |key: &str| match pod::list(pod::spec(template_pod), key) {
        [] => Value::Null,
        items => items.iter().map(pod::name).collect(),
    };
    json!({
        INIT_CONTAINERS: names(INIT_CONTAINERS),
        CONTAINERS: names(CONTAINERS),
        "volumes": names("volumes"),
        "imagePullSecrets": names("imagePullSecrets"),
        "revision": if revision.is_empty() { "default" } else { revision },
    })
    .to_string()
}
