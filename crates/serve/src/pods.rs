//! Pods as a watch delivers them: decoded into the parts that the daemons store, with the version at which the watch
//! resumes.
//!
//! `agent` and `repair` store different parts of a pod and share one watch: [`PodParts`] decodes both, and a
//! [`Subscriber`] gets the events. This file sends no request.

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
pub enum PodEvent<T> {
    /// A list begins.
    ListStarted,
    /// A listed, new or changed pod.
    Applied(T),
    /// The list has ended: pods that it did not contain are gone.
    ListDone,
    /// A deleted pod, in its last state.
    Deleted(T),
    /// A request to the API server failed; it is retried.
    Failed,
}

/// The channels between a watch and the task that receives its events.
#[derive(Debug, Clone)]
pub struct Subscriber<T> {
    pub events: mpsc::Sender<PodEvent<T>>,
    /// Notified to request a new list.
    pub relist: Arc<Notify>,
}

/// Two parts of one pod, decoded from the same JSON.
#[derive(Debug, Clone)]
pub struct PodParts<A, B>(pub A, pub B);

impl<'de, A: DeserializeOwned, B: DeserializeOwned> Deserialize<'de> for PodParts<A, B> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(from)?;
        let first = serde_json::from_str(json.get()).map_err(D::Error::custom)?;
        let second = serde_json::from_str(json.get()).map_err(D::Error::custom)?;
        Ok(Self(first, second))
    }
}

impl<A: PartialPod, B: DeserializeOwned> PartialPod for PodParts<A, B> {
    fn version(&self) -> Option<&str> {
        self.0.version()
    }
}

/// The part of a pod that a daemon stores, decoded from the API server's JSON.
pub trait PartialPod: DeserializeOwned {
    /// `metadata.resourceVersion`
    fn version(&self) -> Option<&str>;
}

/// A watched pod. Its metadata holds only the version, which `kube` needs for a watch.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "T", bound(deserialize = "T: PartialPod"))]
pub struct Watched<T> {
    pub pod: T,
    metadata: ObjectMeta,
}

impl<T: PartialPod> From<T> for Watched<T> {
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

    impl PartialPod for Versioned {
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
        let parts = r#"{"version":"7"}"#;
        let parts: Watched<PodParts<Versioned, serde_json::Value>> = serde_json::from_str(parts).unwrap();
        assert_eq!((parts.meta().resource_version.as_deref(), &parts.pod.1["version"]), (Some("7"), &"7".into()));
        assert_eq!(Watched::<Versioned>::url_path(&(), Some("shop")), "/api/v1/namespaces/shop/pods");
    }
}
