//! A pod as a watch carries it: what a daemon keeps of it, and the version from which the watch goes on.
//!
//! `agent` and `repair` keep different parts of a pod and share one watch: [`Views`] decodes both, a [`Feed`] passes
//! events on. Nothing is asked here.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc};

/// One event of a list and watch of pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen<T> {
    /// A list begins.
    ListBegins,
    /// A pod of the list, or one that is new or has changed.
    Pod(T),
    /// The list has ended: pods that it did not name are gone.
    ListEnds,
    /// A pod is gone, and what it was like last.
    Gone(T),
    /// The API server could not be asked; it is asked again.
    Failed,
}

/// Where the events of a watch go.
#[derive(Debug, Clone)]
pub struct Feed<T> {
    /// Takes the events.
    pub seen: mpsc::Sender<Seen<T>>,
    /// Notified when a new list is wanted.
    pub again: Arc<Notify>,
}

/// Two views of one pod, each decoded from the same JSON.
#[derive(Debug, Clone)]
pub struct Views<A, B>(pub A, pub B);

impl<'de, A: DeserializeOwned, B: DeserializeOwned> Deserialize<'de> for Views<A, B> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(from)?;
        let first = serde_json::from_str(json.get()).map_err(D::Error::custom)?;
        let second = serde_json::from_str(json.get()).map_err(D::Error::custom)?;
        Ok(Self(first, second))
    }
}

impl<A: Kept, B: DeserializeOwned> Kept for Views<A, B> {
    fn version(&self) -> Option<&str> {
        self.0.version()
    }
}

/// What a daemon keeps of a pod, decoded from what the API server sends.
pub trait Kept: DeserializeOwned {
    /// `metadata.resourceVersion`
    fn version(&self) -> Option<&str>;
}

/// A pod of a watch. Of its metadata, `kube` is shown the version: a watch cannot do without.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "T", bound(deserialize = "T: Kept"))]
pub struct Watched<T> {
    /// What is kept of it.
    pub pod: T,
    metadata: ObjectMeta,
}

impl<T: Kept> From<T> for Watched<T> {
    fn from(pod: T) -> Self {
        let resource_version = pod.version().map(str::to_owned);
        Self { pod, metadata: ObjectMeta { resource_version, ..ObjectMeta::default() } }
    }
}

impl<T> Resource for Watched<T> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Versioned {
        version: Option<String>,
    }

    impl Kept for Versioned {
        fn version(&self) -> Option<&str> {
            self.version.as_deref()
        }
    }

    #[test]
    fn a_watch_is_shown_the_version_of_what_is_kept() {
        for (json, version) in [(r#"{"version":"7"}"#, Some("7")), ("{}", None)] {
            let watched: Watched<Versioned> = serde_json::from_str(json).unwrap();
            assert_eq!(watched.meta().resource_version.as_deref(), version);
            assert_eq!(watched.pod.version.as_deref(), version);
        }
        let views = r#"{"version":"7"}"#;
        let views: Watched<Views<Versioned, serde_json::Value>> = serde_json::from_str(views).unwrap();
        assert_eq!((views.meta().resource_version.as_deref(), &views.pod.1["version"]), (Some("7"), &"7".into()));
        assert_eq!(Watched::<Versioned>::url_path(&(), Some("shop")), "/api/v1/namespaces/shop/pods");
    }
}
