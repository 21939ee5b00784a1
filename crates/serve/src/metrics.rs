//! Serves `/metrics` as OpenMetrics text.
//!
//! Modules register their own metrics; this module only encodes the registry.

use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::http::{Request, Response, content, text};

/// The media type of [`encode`]'s output, which Prometheus requires.
const OPENMETRICS: HeaderValue = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    component: &'static str,
    tag: &'static str,
}

/// Registers Istio's `istio_build{component,tag}`, which is 1 and names the version of the running program.
pub fn register_build(registry: &mut Registry, component: &'static str) {
    let build = Family::<Build, Gauge>::default();
    build.get_or_create(&Build { component, tag: env!("CARGO_PKG_VERSION") }).set(1);
    registry.register("istio_build", "Version of the running program, as the label tag", build);
}

pub fn respond(request: &Request, registry: &Registry) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "metrics require GET\n");
    }
    if request.uri().path() != "/metrics" {
        return text(StatusCode::NOT_FOUND, "the path is /metrics\n");
    }
    let mut page = String::new();
    match encode(&mut page, registry) {
        Ok(()) => content(StatusCode::OK, OPENMETRICS, page),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("metrics cannot be written: {error}\n")),
    }
}
