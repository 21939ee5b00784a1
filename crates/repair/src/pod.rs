//! The pod fields that repair reads. No other fields are decoded, because a watch may have thousands of pods.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use podfacts::PodName;
use serde::de::{IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer};

use serve::pods::PartialPod;

/// The fields of a pod that detection reads.
#[derive(Debug, Clone, Deserialize)]
pub struct Pod {
    pub(super) metadata: Metadata,
    #[serde(default)]
    pub(super) spec: Spec,
    #[serde(default)]
    pub(super) status: Status,
}

/// An annotation's value if it has at most [`MAX_VALUE`] bytes; longer values are dropped.
#[derive(Debug, Clone, Default)]
pub(super) struct ShortValue(pub(super) Option<Box<str>>);

const MAX_VALUE: usize = 16;

impl<'de> Deserialize<'de> for ShortValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ShortValueVisitor)
    }
}

/// Checks the length of the borrowed string, so that long values are not copied.
struct ShortValueVisitor;

impl Visitor<'_> for ShortValueVisitor {
    type Value = ShortValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E>(self, text: &str) -> Result<ShortValue, E> {
        Ok(ShortValue((text.len() <= MAX_VALUE).then(|| text.into())))
    }

    fn visit_unit<E>(self) -> Result<ShortValue, E> {
        Ok(ShortValue(None))
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) deletion_timestamp: Option<IgnoredAny>,
    pub(super) creation_timestamp: Option<Timestamp>,
    pub(super) annotations: Option<BTreeMap<String, ShortValue>>,
    pub(super) labels: Option<BTreeMap<String, String>>,
    pub(super) owner_references: Option<Vec<OwnerReference>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct OwnerReference {
    pub(super) kind: String,
    pub(super) uid: String,
    pub(super) controller: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Spec {
    pub(super) node_name: String,
    pub(super) restart_policy: String,
    pub(super) host_network: bool,
    pub(super) scheduler_name: String,
    pub(super) service_account_name: String,
    pub(super) containers: Option<Vec<Named>>,
    pub(super) init_containers: Option<Vec<Named>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Named {
    pub(super) name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    pub(super) phase: String,
    pub(super) nominated_node_name: String,
    #[serde(rename = "podIP")]
    pub(super) pod_ip: String,
    #[serde(rename = "podIPs")]
    pub(super) pod_ips: Option<Vec<Address>>,
    pub(super) init_container_statuses: Option<Vec<Container>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Address {
    pub(super) ip: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) restart_count: u32,
    pub(super) state: State,
    pub(super) last_state: State,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct State {
    pub(super) running: Option<IgnoredAny>,
    pub(super) terminated: Option<Terminated>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Terminated {
    pub(super) exit_code: i32,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Pod {
    /// `metadata.uid`
    pub(super) fn uid(&self) -> &str {
        &self.metadata.uid
    }

    pub(super) fn pod_name(&self) -> PodName {
        PodName { namespace: self.metadata.namespace.clone(), name: self.metadata.name.clone() }
    }
}

impl PartialPod for Pod {
    fn version(&self) -> Option<&str> {
        Some(&self.metadata.resource_version)
    }
}
