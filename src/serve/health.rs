//! `/healthz` and `/readyz`: which parts of a daemon are still missing, and why.
//!
//! The daemon's parts report to [`Readiness`]; probes read it. Nothing is decided here but the status code.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::{Method, StatusCode};

use super::http::{Request, Response, text};

/// What is missing; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<&'static str, String>>>);

impl Readiness {
    /// All of these parts are missing until they say otherwise.
    pub fn awaiting(parts: &[&'static str]) -> Self {
        Self(Arc::new(Mutex::new(parts.iter().map(|part| (*part, "starting".to_owned())).collect())))
    }

    /// This part is there.
    pub fn ready(&self, part: &'static str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(part);
    }

    /// This part is missing, and why.
    pub fn missing(&self, part: &'static str, why: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(part, why.into());
    }

    /// A line for each part that is missing; none: ready.
    pub fn report(&self) -> Option<String> {
        let missing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (!missing.is_empty()).then(|| {
            missing.iter().fold(String::new(), |mut lines, (part, why)| {
                // Writing to a string cannot fail.
                let _ = writeln!(lines, "{part}: {why}");
                lines
            })
        })
    }
}

/// Answers a probe.
pub fn answer(request: &Request, readiness: &Readiness) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "probes ask with GET\n");
    }
    match request.uri().path() {
        "/healthz" => text(StatusCode::OK, "ok\n"),
        "/readyz" => match readiness.report() {
            None => text(StatusCode::OK, "ok\n"),
            Some(missing) => text(StatusCode::SERVICE_UNAVAILABLE, missing),
        },
        _ => text(StatusCode::NOT_FOUND, "there are /healthz and /readyz\n"),
    }
}

#[cfg(test)]
mod tests {
    use hyper::body::Bytes;

    use super::*;

    fn status(path: &str, readiness: &Readiness) -> u16 {
        answer(&hyper::Request::get(path).body(Bytes::new()).unwrap(), readiness).status().as_u16()
    }

    #[test]
    fn ready_is_when_nothing_is_missing() {
        let readiness = Readiness::awaiting(&["install", "metrics"]);
        assert_eq!(readiness.report().unwrap(), "install: starting\nmetrics: starting\n");
        readiness.ready("install");
        readiness.missing("metrics", "port 15014 is taken");
        assert_eq!(readiness.report().unwrap(), "metrics: port 15014 is taken\n");
        assert_eq!((status("/healthz", &readiness), status("/readyz", &readiness)), (200, 503));
        readiness.ready("metrics");
        assert_eq!((status("/readyz", &readiness), status("/", &readiness)), (200, 404));
    }
}
