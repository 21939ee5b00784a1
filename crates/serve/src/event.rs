//! Builds Events about objects, and creates them.
//!
//! Events have the API version core/v1, because Istio's role does not include events.k8s.io. Only [`create`] does I/O.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::timeout;

/// The size limit of a message in bytes, as in kubelets.
const MAX_MESSAGE: usize = 1024;
/// The size limit of a name in Kubernetes, in bytes.
pub const MAX_NAME: usize = 253;
/// The time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The program that reports an event.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    pub component: &'static str,
    /// The node, for programs that serve one.
    pub host: Option<&'a str>,
    /// `reportingInstance`: the node, or the replica.
    pub instance: &'a str,
}

/// The reason and the message of an event.
#[derive(Debug, Clone, Copy)]
pub struct Content<'a> {
    pub reason: &'a str,
    /// The event contains at most the first 1024 bytes.
    pub message: &'a str,
}

/// Returns the reference to a pod.
pub fn pod(namespace: &str, name: &str, uid: Option<&str>) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: uid.map(str::to_owned),
        ..ObjectReference::default()
    }
}

/// Returns a warning about an object, in the object's namespace. The event is named after the object, with `suffix`; a second event
/// with this name cannot be created.
pub fn warning(
    object: ObjectReference,
    origin: Origin<'_>,
    content: Content<'_>,
    suffix: &str,
    now: Timestamp,
) -> Event {
    let message = &content.message[..content.message.floor_char_boundary(MAX_MESSAGE)];
    let name = object.name.as_deref().unwrap_or_default();
    let stem = name[..name.floor_char_boundary(MAX_NAME - 1 - suffix.len())].trim_end_matches(['-', '.']);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{stem}.{suffix}")),
            namespace: object.namespace.clone(),
            ..ObjectMeta::default()
        },
        involved_object: object,
        type_: Some("Warning".to_owned()),
        reason: Some(content.reason.to_owned()),
        message: Some(message.to_owned()),
        count: Some(1),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        source: Some(EventSource {
            component: Some(origin.component.to_owned()),
            host: origin.host.map(str::to_owned),
        }),
        reporting_component: Some(origin.component.to_owned()),
        reporting_instance: Some(origin.instance.to_owned()),
        ..Event::default()
    }
}

/// Creates an event, unless an event with its name exists. A failure is logged.
pub async fn create(client: &Client, event: &Event) {
    let api = Api::<Event>::namespaced(client.clone(), event.metadata.namespace.as_deref().unwrap_or_default());
    match timeout(TIMEOUT, api.create(&PostParams::default(), event)).await {
        Ok(Ok(_)) => {}
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => {}
        Ok(Err(error)) => tracing::warn!(%error, "an Event cannot be written"),
        Err(_) => tracing::warn!("an Event cannot be written: the API server does not respond"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_messages_are_within_the_api_servers_limits() {
        let origin = Origin { component: "istio-cni", host: Some("n"), instance: "n" };
        let now = Timestamp::from_second(1_767_225_600).unwrap();
        let of = |name: &str, message: &str| {
            let object = ObjectReference {
                name: Some(name.to_owned()),
                namespace: Some("shop".to_owned()),
                ..ObjectReference::default()
            };
            warning(object, origin, Content { reason: "R", message }, "18867251edfa0000", now)
        };
        let long = format!("{}.{}", "a".repeat(235), "b".repeat(17));
        let event = of(&long, &"ü".repeat(9999));
        assert_eq!(event.metadata.name.unwrap(), format!("{}.18867251edfa0000", "a".repeat(235)));
        assert_eq!(event.message.unwrap().len(), MAX_MESSAGE);
        assert_eq!(event.involved_object.name, Some(long));
        let event = of("web-0", "short");
        assert_eq!(event.metadata.name.as_deref(), Some("web-0.18867251edfa0000"));
        assert_eq!((event.metadata.namespace.as_deref(), event.message.as_deref()), (Some("shop"), Some("short")));
    }
}
