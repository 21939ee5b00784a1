//! Builds responses: objects, lists and errors as the API server sends them.

use futures::stream::{self, StreamExt as _};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::Response;
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use super::Never;
use super::route::Target;
use super::select::Query;
use super::store::Store;

pub(super) type Body = UnsyncBoxBody<Bytes, Never>;

/// An error response: a Kubernetes `Status` whose `status` is `Failure`.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) code: u16,
    pub(super) reason: String,
    pub(super) message: String,
    /// The seconds in the header `Retry-After` and in `details.retryAfterSeconds`.
    pub(super) retry_after: Option<u32>,
    /// The object's name, in `details.name`.
    name: Option<String>,
}

impl Failure {
    pub(super) fn status(code: u16, reason: &str, message: &str) -> Self {
        Self { code, reason: reason.to_owned(), message: message.to_owned(), retry_after: None, name: None }
    }

    pub(super) fn not_found(what: &str) -> Self {
        Self::status(404, "NotFound", &format!("{what} not found"))
    }

    pub(super) fn no_object(resource: &str, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..Self::not_found(&format!("{resource} \"{name}\"")) }
    }

    pub(super) fn conflict(message: &str) -> Self {
        Self::status(409, "Conflict", message)
    }

    pub(super) fn expired() -> Self {
        Self::status(410, "Expired", "too old resource version")
    }

    pub(super) fn object(&self) -> Value {
        let mut object = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some(seconds) = self.retry_after {
            object["details"]["retryAfterSeconds"] = seconds.into();
        }
        if let Some(name) = &self.name {
            object["details"]["name"] = name.as_str().into();
        }
        object
    }

    pub(super) fn response(&self) -> Response<Body> {
        let mut response = object(self.code, &self.object());
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(hyper::header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

pub(super) fn object(code: u16, object: &Value) -> Response<Body> {
    whole(code, object.to_string())
}

pub(super) fn list(store: &Store, target: &Target, query: &Query) -> Response<Body> {
    let mut items = store.list(&target.resource, target.namespace.as_deref(), query);
    let mut metadata = json!({ "resourceVersion": store.revision().to_string() });
    let from = query.number("continue").unwrap_or(0).min(items.len());
    items.drain(..from);
    // The real API server's watch cache ignores the limit for resource version 0.
    if let Some(limit) = query.number("limit").filter(|limit| query.get("resourceVersion") != Some("0") && *limit > 0)
        && items.len() > limit
    {
        items.truncate(limit);
        metadata["continue"] = json!((from + limit).to_string());
    }
    let items: Vec<&str> = items.iter().map(|stored| stored.json.as_str()).collect();
    let (kind, version) = (json!(target.list_kind()), json!(target.api_version));
    whole(
        200,
        format!("{{\"kind\":{kind},\"apiVersion\":{version},\"metadata\":{metadata},\"items\":[{}]}}", items.join(",")),
    )
}

/// Returns a response that streams these lines until the sender is dropped.
pub(super) fn stream(lines: UnboundedReceiver<String>) -> Response<Body> {
    let lines = stream::unfold(lines, |mut lines| async { lines.recv().await.map(|line| (line, lines)) });
    let frames = lines.map(|line| Ok(Frame::data(Bytes::from(line))));
    response(200, StreamBody::new(frames).boxed_unsync())
}

/// Returns a response with this status and this body, which need not be JSON.
pub(super) fn raw(code: u16, body: Bytes) -> Response<Body> {
    response(code, Full::from(body).boxed_unsync())
}

fn whole(code: u16, json: String) -> Response<Body> {
    response(code, Full::from(json).boxed_unsync())
}

fn response(code: u16, body: Body) -> Response<Body> {
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(body).expect("a status and a header that HTTP has")
}
