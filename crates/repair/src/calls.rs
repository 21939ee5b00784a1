//! API requests of repair, limited in time and size. Changes have the pod's UID and resource version as preconditions.
//!
//! Responses are parsed here because `kube` drops `Retry-After`.

use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::{Request, Response};
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde_json::{Value, json};

use super::broken::Broken;

/// The time limit of one request, including the connection.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The size limit of a response, in bytes. etcd stores objects of up to 1.5 MiB, and their JSON may be twice as long.
const MAX_RESPONSE: usize = 4 << 20;
/// The size limit of an error message from the server, in characters.
const MAX_MESSAGE: usize = 512;

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{operation}: the API server does not respond")]
    Unreachable {
        operation: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("{operation}: no response of the API server within {TIMEOUT:?}")]
    TimedOut { operation: &'static str },
    /// The response has an error status.
    #[error("{operation}: the API server responds with {status}: {message}{}", hint(*status, operation))]
    Refused {
        operation: &'static str,
        status: u16,
        message: String,
        /// The delay before a retry that the server requests.
        wait: Option<Duration>,
    },
}

/// Returns a hint for the operator, or an empty string.
fn hint(status: u16, operation: &str) -> String {
    match status {
        403 => format!(" (its role must allow `{operation}`)"),
        _ => String::new(),
    }
}

/// The names of the requests in messages: RBAC verb and resource.
const EVICT: &str = "create pods/eviction";
const DELETE: &str = "delete pods";
const LABEL: &str = "patch pods/status";
const GET: &str = "get pods";
const CREATE_EVENT: &str = "create events";

/// Sends repair's requests to the API server.
#[derive(Clone)]
pub(super) struct Calls(Client);

impl Calls {
    pub(super) fn new(client: Client) -> Self {
        Self(client)
    }

    /// Evicts the pod. This module creates the Eviction itself, because `kube` serializes the field as
    /// `delete_options`, which the API server ignores together with the preconditions in it.
    pub(super) async fn evict(&self, broken: &Broken) -> Result<(), Error> {
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {
                "namespace": broken.pod.namespace, "name": broken.pod.name,
                // The admission policy `istio-cni-eviction`, which checks the evicted pod, selects the agent's
                // evictions by this label.
                "labels": { contract::EVICTION_LABEL: "true" },
            },
            "deleteOptions": { "preconditions": preconditions(broken) },
        });
        let path = format!("{}/eviction", path(broken));
        self.send(EVICT, Request::post(path), "application/json", &eviction).await.map(drop)
    }

    pub(super) async fn delete(&self, broken: &Broken) -> Result<(), Error> {
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions(broken) });
        self.send(DELETE, Request::delete(path(broken)), "application/json", &options).await.map(drop)
    }

    /// Labels the pod through `pods/status`, as Istio's role allows. A permission to patch `pods` would also allow
    /// changes of images.
    pub(super) async fn label(&self, broken: &Broken, key: &str, value: &str) -> Result<(), Error> {
        let patch = json!({ "metadata": {
            "uid": broken.uid, "resourceVersion": broken.version, "labels": { key: value },
        }});
        let path = format!("{}/status", path(broken));
        self.send(LABEL, Request::patch(path), "application/merge-patch+json", &patch).await.map(drop)
    }

    /// Reads the current pod.
    pub(super) async fn get(&self, broken: &Broken) -> Result<Vec<u8>, Error> {
        self.send(GET, Request::get(path(broken)), "application/json", &Value::Null).await
    }

    pub(super) async fn create_event(&self, namespace: &str, event: &Event) -> Result<(), Error> {
        let path = format!("/api/v1/namespaces/{namespace}/events");
        self.send(CREATE_EVENT, Request::post(path), "application/json", &json!(event)).await.map(drop)
    }

    async fn send(
        &self,
        operation: &'static str,
        request: hyper::http::request::Builder,
        content_type: &'static str,
        body: &Value,
    ) -> Result<Vec<u8>, Error> {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let unreachable = |source: Box<dyn std::error::Error + Send + Sync>| Error::Unreachable { operation, source };
        let request = request.header(CONTENT_TYPE, content_type).body(Body::from(bytes));
        let request = request.map_err(|error| unreachable(error.into()))?;
        let exchange = async {
            let response = self.0.send(request).await.map_err(|error| unreachable(error.into()))?;
            let (status, wait) = (response.status(), wait(&response));
            let body =
                Limited::new(response.into_body(), MAX_RESPONSE).collect().await.map_err(unreachable)?.to_bytes();
            if status.is_success() {
                return Ok(body.to_vec());
            }
            let (message, in_body) = parse_error(&body);
            Err(Error::Refused { operation, status: status.as_u16(), message, wait: wait.or(in_body) })
        };
        tokio::time::timeout(TIMEOUT, exchange).await.unwrap_or(Err(Error::TimedOut { operation }))
    }
}

fn path(broken: &Broken) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", broken.pod.namespace, broken.pod.name)
}

fn preconditions(broken: &Broken) -> Value {
    json!({ "uid": broken.uid, "resourceVersion": broken.version })
}

/// Reads `Retry-After` in seconds; API servers do not send the date form.
fn wait(response: &Response<Body>) -> Option<Duration> {
    response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
    details: Option<Details>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    retry_after_seconds: u64,
}

/// Parses the message and the retry delay of an error response. The API server or a proxy in front of it may send plain text.
fn parse_error(body: &[u8]) -> (String, Option<Duration>) {
    let Ok(status) = serde_json::from_slice::<Status>(body) else {
        return (String::from_utf8_lossy(body).trim().chars().take(MAX_MESSAGE).collect(), None);
    };
    let seconds = status.details.map_or(0, |details| details.retry_after_seconds);
    (status.message.chars().take(MAX_MESSAGE).collect(), (seconds > 0).then(|| Duration::from_secs(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_parsed_as_status_or_text() {
        let status = br#"{"kind":"Status","message":"no","details":{"retryAfterSeconds":10}}"#;
        assert_eq!(parse_error(status), ("no".to_owned(), Some(Duration::from_secs(10))));
        assert_eq!(parse_error(br#"{"message":"no","details":{}}"#), ("no".to_owned(), None));
        assert_eq!(parse_error(b"Too many requests, please try again later.\n").0.len(), 42);
        assert_eq!(parse_error("ü".repeat(9999).as_bytes()).0.chars().count(), MAX_MESSAGE);
    }

    #[test]
    fn a_missing_permission_is_named() {
        let refused = Error::Refused { operation: EVICT, status: 403, message: "forbidden".into(), wait: None };
        assert!(refused.to_string().ends_with("(its role must allow `create pods/eviction`)"), "{refused}");
    }
}
