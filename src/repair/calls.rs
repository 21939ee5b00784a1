//! The requests that repair makes, each bounded in time and size, each with the pod's UID and version as preconditions.
//!
//! Answers are read here rather than by `kube`, which drops the header that says when to come back.

use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde_json::{Value, json};

use super::broken::Broken;
use crate::contract;

/// Of one request, connecting included.
const LIMIT: Duration = Duration::from_secs(10);
/// etcd takes 1.5 MiB, JSON may take twice as much.
const LARGEST: usize = 4 << 20;
/// Of what a server says about its refusal.
const LONGEST: usize = 512;

/// Why a request has not done what it should.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// No answer.
    #[error("{doing}: the API server does not answer")]
    Unreachable {
        doing: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No answer in time.
    #[error("{doing}: no answer of the API server within {LIMIT:?}")]
    TimedOut { doing: &'static str },
    /// Another answer than wished.
    #[error("{doing}: the API server answers {status}: {message}{}", hint(*status, doing))]
    Refused {
        doing: &'static str,
        status: u16,
        message: String,
        /// When to come back.
        wait: Option<Duration>,
    },
}

/// What an operator can do about it.
fn hint(status: u16, doing: &str) -> String {
    match status {
        403 => format!(" (its role must allow `{doing}`)"),
        _ => String::new(),
    }
}

/// What is done, as RBAC spells it.
const EVICT: &str = "create pods/eviction";
const DELETE: &str = "delete pods";
const LABEL: &str = "patch pods/status";
const GET: &str = "get pods";
const TELL: &str = "create events";

/// A client that makes these requests and no others.
#[derive(Clone)]
pub(super) struct Calls(Client);

impl Calls {
    pub(super) fn new(client: Client) -> Self {
        Self(client)
    }

    /// `kube`'s own eviction spells `delete_options`, which the API server passes over, preconditions and all.
    pub(super) async fn evict(&self, broken: &Broken) -> Result<(), Error> {
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {
                "namespace": broken.pod.namespace, "name": broken.pod.name,
                // Selects the admission policy that looks the pod up.
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

    /// Through the status, as Istio's role allows it: the right to patch pods themselves would be the right to change
    /// their images.
    pub(super) async fn label(&self, broken: &Broken, key: &str, value: &str) -> Result<(), Error> {
        let patch = json!({ "metadata": {
            "uid": broken.uid, "resourceVersion": broken.version, "labels": { key: value },
        }});
        let path = format!("{}/status", path(broken));
        self.send(LABEL, Request::patch(path), "application/merge-patch+json", &patch).await.map(drop)
    }

    /// The whole pod, as it is now.
    pub(super) async fn get(&self, broken: &Broken) -> Result<Vec<u8>, Error> {
        self.send(GET, Request::get(path(broken)), "application/json", &Value::Null).await
    }

    pub(super) async fn tell(&self, namespace: &str, event: &Value) -> Result<(), Error> {
        let path = format!("/api/v1/namespaces/{namespace}/events");
        self.send(TELL, Request::post(path), "application/json", event).await.map(drop)
    }

    async fn send(
        &self,
        doing: &'static str,
        request: hyper::http::request::Builder,
        content_type: &'static str,
        body: &Value,
    ) -> Result<Vec<u8>, Error> {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let unreachable = |source: Box<dyn std::error::Error + Send + Sync>| Error::Unreachable { doing, source };
        let request = request.header(CONTENT_TYPE, content_type).body(Body::from(bytes));
        let request = request.map_err(|error| unreachable(error.into()))?;
        let exchange = async {
            let response = self.0.send(request).await.map_err(|error| unreachable(error.into()))?;
            let (status, wait) = (response.status(), wait(&response));
            let body = Limited::new(response.into_body(), LARGEST).collect().await.map_err(unreachable)?.to_bytes();
            if status.is_success() {
                return Ok(body.to_vec());
            }
            let (message, told) = refusal(&body);
            Err(Error::Refused { doing, status: status.as_u16(), message, wait: wait.or(told) })
        };
        tokio::time::timeout(LIMIT, exchange).await.unwrap_or(Err(Error::TimedOut { doing }))
    }
}

fn path(broken: &Broken) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", broken.pod.namespace, broken.pod.name)
}

fn preconditions(broken: &Broken) -> Value {
    json!({ "uid": broken.uid, "resourceVersion": broken.version })
}

/// Seconds; the other form, a date, is none that an API server sends.
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

/// What a refusal says, and when to come back. Some come as plain text, from the API server itself or from what is before it.
fn refusal(body: &[u8]) -> (String, Option<Duration>) {
    let Ok(status) = serde_json::from_slice::<Status>(body) else {
        return (String::from_utf8_lossy(body).trim().chars().take(LONGEST).collect(), None);
    };
    let seconds = status.details.map_or(0, |details| details.retry_after_seconds);
    (status.message.chars().take(LONGEST).collect(), (seconds > 0).then(|| Duration::from_secs(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_read_as_status_or_as_text() {
        let status = br#"{"kind":"Status","message":"no","details":{"retryAfterSeconds":10}}"#;
        assert_eq!(refusal(status), ("no".to_owned(), Some(Duration::from_secs(10))));
        assert_eq!(refusal(br#"{"message":"no","details":{}}"#), ("no".to_owned(), None));
        assert_eq!(refusal(b"Too many requests, please try again later.\n").0.len(), 42);
        assert_eq!(refusal("ü".repeat(9999).as_bytes()).0.chars().count(), LONGEST);
    }

    #[test]
    fn a_missing_permission_is_named() {
        let refused = Error::Refused { doing: EVICT, status: 403, message: "forbidden".into(), wait: None };
        assert!(refused.to_string().ends_with("(its role must allow `create pods/eviction`)"), "{refused}");
    }
}
