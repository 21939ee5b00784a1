//! Serves `/metrics` as OpenMetrics text.
//!
//! Modules register their own metrics; this module only encodes the registry.

use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::http::{Request, Response, content, text};

/// The media type of [`encode`]'s output, which Prometheus requires.
const OPENMETRICS: HeaderValue = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

pub fn answer(request: &Request, registry: &Registry) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "metrics are asked for with GET\n");
    }
    if request.uri().path() != "/metrics" {
        return text(StatusCode::NOT_FOUND, "there is /metrics\n");
    }
    let mut page = String::new();
    match encode(&mut page, registry) {
        Ok(()) => content(StatusCode::OK, OPENMETRICS, page),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("metrics cannot be written: {error}\n")),
    }
}
