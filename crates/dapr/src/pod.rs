//! The pod fields that the injector reads, borrowed from the review, with checked types.
//!
//! Null is treated as an absent field, as in the API server. Other fields are left to the API server to validate.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::Refusal;
use inject::{Record, or_default, record, records};

pub(super) use contract::dapr::SIDECAR;

#[derive(Debug, Deserialize)]
pub(super) struct Pod<'a> {
    #[serde(borrow, default, deserialize_with = "record")]
    pub(super) metadata: Metadata<'a>,
    #[serde(borrow, deserialize_with = "required")]
    pub(super) spec: Spec<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata<'a> {
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub(super) name: &'a str,
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub(super) generate_name: &'a str,
    /// An annotation whose value is null is treated as set and empty.
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

/// A toleration of a pod or in the operator's list.
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
    /// Whether both tolerations have equal fields. Dapr compares the pointers to `tolerationSeconds` instead of the
    /// values, so that a toleration with seconds never matches; tolerations of virtual kubelets have no seconds.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.toleration_seconds.is_none() && self == other
    }
}

impl<'a> Pod<'a> {
    /// Parses the object of an admission request.
    ///
    /// # Errors
    /// A field has the wrong type, or `spec` is missing.
    pub(super) fn read(object: &'a Value) -> Result<Self, Refusal> {
        required(object).map_err(|error: serde_json::Error| Refusal::Malformed(error.to_string()))
    }

    /// Returns the name of the list of containers that already has the sidecar, if any.
    pub(super) fn sidecar(&self) -> Option<&'static str> {
        if self.spec.containers.iter().any(|container| container.name == SIDECAR) {
            return Some("containers");
        }
        self.spec.init_containers.iter().any(|container| container.name == SIDECAR).then_some("initContainers")
    }
}

/// Deserializes a required struct.
fn required<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Record::deserialize(from)?.0)
}
