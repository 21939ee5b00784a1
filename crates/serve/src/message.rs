//! Requests and responses whose bodies are in memory, and constructors of responses.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{StatusCode, header};

/// A request with its whole body.
pub type Request = hyper::Request<Bytes>;
/// A response with its whole body.
pub type Response = hyper::Response<Full<Bytes>>;

/// Returns a plain text response.
pub fn text(status: StatusCode, text: impl Into<Bytes>) -> Response {
    content(status, header::HeaderValue::from_static("text/plain; charset=utf-8"), text)
}

/// Returns a response of the media type `kind`.
pub fn content(status: StatusCode, kind: header::HeaderValue, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Adds `Connection: close`, so that the peer uses another connection for its next request.
pub fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    response
}

/// Returns the response 503 of a server that has reached one of its limits. `Retry-After` makes API servers repeat the
/// request after a second, over another connection, which may lead to another replica.
pub fn busy(why: impl Into<Bytes>) -> Response {
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, why);
    response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    closing(response)
}
