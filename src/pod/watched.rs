//! Pods as a watch delivers them: decoded into the views of the daemons, with the version at which the watch resumes.
//!
//! `agent` and `repair` keep different parts of a pod and share one watch: [`Views`] decodes both, a [`Feed`] passes
//! events on. This file sends no request.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc};

/// An event of a list and watch of pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen<T> {
    /// A list begins.
    ListBegins,
    /// A listed, new or changed pod.
    Pod(T),
    /// The list has ended: pods that it did not contain are gone.
    ListEnds,
    /// A deleted pod, in its last state.
    Gone(T),
    /// A request to the API server failed; it is retried.
    Failed,
}

/// The receiver of a watch's events.
#[derive(Debug, Clone)]
pub struct Feed<T> {
    pub seen: mpsc::Sender<Seen<T>>,
    /// Notified to request a new list.
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

/// The parts of a pod that a daemon keeps, decoded from the API server's JSON.
pub trait Kept: DeserializeOwned {
    /// `metadata.resourceVersion`
    fn version(&self) -> Option<&str>;
}

/// A watched pod. Its metadata holds only the version, which `kube` needs for a watch.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "T", bound(deserialize = "T: Kept"))]
pub struct Watched<T> {
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
    fn a_watched_pod_has_its_resource_version() {
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
