//! What the injector reads of a pod: borrowed from the review, checked for its types.
//!
//! A null reads as what is absent, as the API server reads it. Members that are not here are the API server's to check.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::Refusal;
use crate::inject::{Record, or_default, record, records};

pub(super) use crate::contract::dapr::SIDECAR;

#[derive(Debug, Deserialize)]
pub(super) struct Pod<'a> {
    #[serde(borrow, default, deserialize_with = "record")]
    pub(super) metadata: Metadata<'a>,
    #[serde(borrow, deserialize_with = "there")]
    pub(super) spec: Spec<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata<'a> {
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub(super) name: &'a str,
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub(super) generate_name: &'a str,
    /// A value that is null is there, and empty.
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub(super) annotations: BTreeMap<&'a str, Option<&'a str>>,
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub(super) labels: BTreeMap<&'a str, Option<&'a str>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec<'a> {
    #[serde(borrow, default, deserialize_with = "records")]
    pub(super) containers: Vec<Container<'a>>,
    #[serde(borrow, default, deserialize_with = "records")]
    pub(super) init_containers: Vec<Named<'a>>,
    #[serde(borrow, default, deserialize_with = "records")]
    pub(super) volumes: Vec<Named<'a>>,
    #[serde(default, deserialize_with = "records")]
    pub(super) tolerations: Vec<Toleration>,
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub(super) service_account_name: &'a str,
}

#[derive(Debug, Deserialize)]
pub(super) struct Named<'a> {
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub(super) name: &'a str,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Container<'a> {
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub(super) name: &'a str,
    #[serde(borrow, default, deserialize_with = "records")]
    pub(super) env: Vec<Named<'a>>,
    #[serde(borrow, default, deserialize_with = "records")]
    pub(super) volume_mounts: Vec<Mount<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Mount<'a> {
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub(super) name: &'a str,
    #[serde(borrow, rename = "mountPath", default, deserialize_with = "or_default")]
    pub(super) path: &'a str,
}

/// A toleration of a pod, or one that the operator listed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    #[serde(default, alias = "Key", deserialize_with = "or_default")]
    key: String,
    #[serde(default, alias = "Operator", deserialize_with = "or_default")]
    operator: String,
    #[serde(default, alias = "Value", deserialize_with = "or_default")]
    value: String,
    #[serde(default, alias = "Effect", deserialize_with = "or_default")]
    effect: String,
    #[serde(default, alias = "TolerationSeconds")]
    toleration_seconds: Option<i64>,
}

impl Toleration {
    /// Whether a pod's toleration is this one, word for word. The original compares the seconds by address, so an entry with
    /// seconds matches none; nodes without containers of their own (virtual kubelets) are not tolerated for a time anyway.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.toleration_seconds.is_none() && self == other
    }
}

impl<'a> Pod<'a> {
    /// Reads the object of a review.
    ///
    /// # Errors
    /// A member that is read has the wrong type, or there is no `spec`.
    pub(super) fn read(object: &'a Value) -> Result<Self, Refusal> {
        there(object).map_err(|error: serde_json::Error| Refusal::Malformed(error.to_string()))
    }

    /// Where the sidecar already is.
    pub(super) fn sidecar(&self) -> Option<&'static str> {
        if self.spec.containers.iter().any(|container| container.name == SIDECAR) {
            return Some("containers");
        }
        self.spec.init_containers.iter().any(|container| container.name == SIDECAR).then_some("initContainers")
    }

    pub(super) fn has_volume(&self, name: &str) -> bool {
        self.spec.volumes.iter().any(|volume| volume.name == name)
    }
}

/// A record that must be there.
fn there<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Record::deserialize(from)?.0)
}
