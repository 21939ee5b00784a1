//! The messages of the package `istio.workload.zds`, and their limits. Pure.
//!
//! The types in [`wire`] have the fields of Istio's `zds.proto`. The agent sends [`Request`]s and reads [`Response`]s:
//! a request always has its fields, and a response is either an acknowledgement or a refusal.

use std::fmt;
use std::sync::Arc;

use prost::Message as _;

use wire::workload_request::Payload;

/// The wire format of the messages.
pub mod wire {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
    #[repr(i32)]
    pub enum Version {
        NotUsed = 0,
        V1 = 1,
    }

    /// The first message from ztunnel.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ZdsHello {
        #[prost(enumeration = "Version", tag = "1")]
        pub version: i32,
    }

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct WorkloadInfo {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(string, tag = "2")]
        pub namespace: String,
        #[prost(string, tag = "3")]
        pub service_account: String,
    }

    /// Adds a pod, whose netns is the packet's file descriptor.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct AddWorkload {
        #[prost(string, tag = "1")]
        pub uid: String,
        #[prost(message, optional, tag = "2")]
        pub workload_info: Option<WorkloadInfo>,
    }

    /// In a snapshot, names a pod whose netns the agent has not found: ztunnel keeps the pod's proxy, if it has one.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct KeepWorkload {
        #[prost(string, tag = "1")]
        pub uid: String,
    }

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct DelWorkload {
        #[prost(string, tag = "2")]
        pub uid: String,
    }

    /// Ends the snapshot: ztunnel drains the proxies of pods that the snapshot did not name.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct SnapshotSent {}

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct Ack {
        /// Empty for success.
        #[prost(string, tag = "1")]
        pub error: String,
    }

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct WorkloadRequest {
        #[prost(oneof = "workload_request::Payload", tags = "1, 2, 3, 5")]
        pub payload: Option<workload_request::Payload>,
    }

    pub mod workload_request {
        #[derive(Clone, PartialEq, Eq, prost::Oneof)]
        pub enum Payload {
            #[prost(message, tag = "1")]
            Add(super::AddWorkload),
            #[prost(message, tag = "2")]
            Del(super::DelWorkload),
            #[prost(message, tag = "3")]
            SnapshotSent(super::SnapshotSent),
            #[prost(message, tag = "5")]
            Keep(super::KeepWorkload),
        }
    }

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct WorkloadResponse {
        #[prost(oneof = "workload_response::Payload", tags = "1")]
        pub payload: Option<workload_response::Payload>,
    }

    pub mod workload_response {
        #[derive(Clone, PartialEq, Eq, prost::Oneof)]
        pub enum Payload {
            #[prost(message, tag = "1")]
            Ack(super::Ack),
        }
    }
}

/// The size of ztunnel's buffer in bytes: ztunnel refuses a longer packet.
pub const REQUEST_SIZE: usize = 1024;
/// The maximum size of a packet from ztunnel in bytes. Istio's agent reads 1024, and treats a longer error as a missing response.
pub const RESPONSE_SIZE: usize = 16 << 10;
/// The maximum size of an error message in bytes; the rest is omitted.
const ERROR_SIZE: usize = 1 << 10;
/// The maximum size of a pod's UID in bytes; a longer one is refused. The UIDs that the API server generates have 36.
const UID_SIZE: usize = 128;
/// The maximum size of a DNS subdomain in bytes, which limits the name of a pod and of a service account.
const SUBDOMAIN_SIZE: usize = 253;
/// The maximum size of a DNS label in bytes, which limits the name of a namespace.
const LABEL_SIZE: usize = 63;

/// Why a message cannot be sent or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A field is too long. Names have Kubernetes' limits; ztunnel reads packets of at most 1024 bytes.
    #[error("the {field} {start:?} has {size} bytes: at most {limit} are allowed")]
    TooLong { field: &'static str, start: String, size: usize, limit: usize },
    #[error("the first packet of ztunnel is not a ZdsHello")]
    Hello(#[source] prost::DecodeError),
    #[error("the packet of ztunnel is not a WorkloadResponse")]
    Response(#[source] prost::DecodeError),
    /// The response has none of the known types, so ztunnel implements a newer protocol.
    #[error("the response of ztunnel is not an acknowledgement; does it implement a newer protocol than this agent?")]
    NoAck,
}

/// A pod's UID, of limited size.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uid(Arc<str>);

impl Uid {
    pub fn new(uid: &str) -> Result<Self, Error> {
        limited("pod's UID", uid, UID_SIZE)?;
        Ok(Self(uid.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The names of a pod, from which ztunnel derives the pod's identity. Each is of limited size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload(Arc<wire::WorkloadInfo>);

impl Workload {
    pub fn new(namespace: &str, name: &str, service_account: &str) -> Result<Self, Error> {
        limited("namespace", namespace, LABEL_SIZE)?;
        limited("pod's name", name, SUBDOMAIN_SIZE)?;
        limited("service account", service_account, SUBDOMAIN_SIZE)?;
        let (name, namespace, service_account) = (name.to_owned(), namespace.to_owned(), service_account.to_owned());
        Ok(Self(Arc::new(wire::WorkloadInfo { name, namespace, service_account })))
    }

    pub fn names(&self) -> &wire::WorkloadInfo {
        &self.0
    }
}

fn limited(field: &'static str, text: &str, limit: usize) -> Result<(), Error> {
    if text.len() <= limit {
        return Ok(());
    }
    Err(Error::TooLong { field, start: text[..text.floor_char_boundary(limit)].to_owned(), size: text.len(), limit })
}

/// A request to ztunnel. `N` is a netns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request<N> {
    /// ztunnel starts a proxy in the pod's netns, unless it has one in that netns.
    Add { uid: Uid, workload: Workload, netns: N },
    /// ztunnel keeps the pod's proxy, if it has one. Only in snapshots.
    Keep { uid: Uid },
    /// ztunnel drains the pod's proxy.
    Del { uid: Uid },
    /// The snapshot is complete: ztunnel drains the proxies of other pods.
    SnapshotSent,
}

impl<N> Request<N> {
    /// Returns the name of the field of `WorkloadRequest`, as a metric label and for logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Add { .. } => "add",
            Self::Keep { .. } => "keep",
            Self::Del { .. } => "del",
            Self::SnapshotSent => "snapshot_sent",
        }
    }

    /// Returns the pod's UID; `None` for the end of the snapshot.
    pub fn uid(&self) -> Option<&Uid> {
        match self {
            Self::Add { uid, .. } | Self::Keep { uid } | Self::Del { uid } => Some(uid),
            Self::SnapshotSent => None,
        }
    }

    /// Returns the netns, whose descriptor the packet carries.
    pub fn netns(&self) -> Option<&N> {
        match self {
            Self::Add { netns, .. } => Some(netns),
            _ => None,
        }
    }

    /// Encodes the request as a `WorkloadRequest`, which the limits of the names keep within [`REQUEST_SIZE`].
    pub fn encode(&self) -> Vec<u8> {
        let payload = match self {
            Self::Add { uid, workload, .. } => {
                let workload_info = Some(workload.names().clone());
                Payload::Add(wire::AddWorkload { uid: uid.to_string(), workload_info })
            }
            Self::Keep { uid } => Payload::Keep(wire::KeepWorkload { uid: uid.to_string() }),
            Self::Del { uid } => Payload::Del(wire::DelWorkload { uid: uid.to_string() }),
            Self::SnapshotSent => Payload::SnapshotSent(wire::SnapshotSent {}),
        };
        wire::WorkloadRequest { payload: Some(payload) }.encode_to_vec()
    }
}

/// ztunnel's response to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    Ack,
    /// ztunnel refused the request for this reason, one line of at most 1024 bytes.
    Nack(String),
}

impl Response {
    /// Decodes a `WorkloadResponse`. Unknown fields are ignored, as by ztunnel and Istio's agent.
    pub fn decode(packet: &[u8]) -> Result<Self, Error> {
        let response = wire::WorkloadResponse::decode(packet).map_err(Error::Response)?;
        match response.payload {
            None => Err(Error::NoAck),
            Some(wire::workload_response::Payload::Ack(ack)) if ack.error.is_empty() => Ok(Self::Ack),
            Some(wire::workload_response::Payload::Ack(ack)) => Ok(Self::Nack(shortened(&ack.error))),
        }
    }
}

/// Decodes a `ZdsHello` and returns its version, which no agent checks: there is only [`wire::Version::V1`].
pub fn hello(packet: &[u8]) -> Result<i32, Error> {
    wire::ZdsHello::decode(packet).map(|hello| hello.version).map_err(Error::Hello)
}

/// Truncates an error to [`ERROR_SIZE`] bytes and replaces control characters, so that it is one line of a log.
fn shortened(text: &str) -> String {
    let start = &text[..text.floor_char_boundary(ERROR_SIZE)];
    start.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests;
