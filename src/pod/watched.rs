//! A pod as a watch carries it: what a daemon keeps of it, and the version from which the watch goes on.
//!
//! `agent` and `repair` watch with types of their own; to the API server they are pods all the same. Nothing is asked here.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use serde::Deserialize;
use serde::de::DeserializeOwned;

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
        assert_eq!(Watched::<Versioned>::url_path(&(), Some("shop")), "/api/v1/namespaces/shop/pods");
    }
}
