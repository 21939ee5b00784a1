//! Requests for a status page and its JSON document, and the reuse of recent reports.
//!
//! The handlers of the monitoring ports call it.
#![expect(clippy::disallowed_methods, reason = "owns the clock of the reports' age")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use jiff::Timestamp;
use serde::Serialize;

use crate::http::{Request, Response, content, text};

/// The path of the HTML page on the monitoring port.
pub const PAGE: &str = "/status";
/// The path of the JSON document on the monitoring port.
pub const DOCUMENT: &str = "/status.json";

/// The time for which a report is reused, so that frequent requests cost little.
const MAX_AGE: Duration = Duration::from_secs(1);

/// The requested form of a report: HTML page or JSON document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Page,
    Document,
}

/// Returns the requested form of the report; `None` for another path or method.
pub fn requested(request: &Request) -> Option<Form> {
    let form = match request.uri().path() {
        PAGE => Form::Page,
        DOCUMENT => Form::Document,
        _ => return None,
    };
    matches!(*request.method(), Method::GET | Method::HEAD).then_some(form)
}

/// Returns the response with a report as JSON.
pub fn document(report: &impl Serialize) -> Response {
    match serde_json::to_vec(report) {
        Ok(json) => content(StatusCode::OK, HeaderValue::from_static("application/json"), json),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("the report cannot be written: {error}\n")),
    }
}

/// The latest report, with the time at which it was built.
#[derive(Debug)]
pub struct Latest<R>(Mutex<Option<(Instant, Arc<R>)>>);

impl<R> Default for Latest<R> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<R> Latest<R> {
    /// Returns a report that is at most a second old, and calls `build` with the current time if there is none.
    pub fn report(&self, build: impl FnOnce(Timestamp) -> R) -> Arc<R> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((time, report)) = &*latest
            && time.elapsed() < MAX_AGE
        {
            return Arc::clone(report);
        }
        let report = Arc::new(build(Timestamp::now()));
        *latest = Some((Instant::now(), Arc::clone(&report)));
        report
    }
}

#[cfg(test)]
mod tests {
    use hyper::body::Bytes;

    use super::*;

    #[test]
    fn only_reads_of_the_two_paths_are_answered() {
        let requested = |method: &str, path: &str| {
            requested(&hyper::Request::builder().method(method).uri(path).body(Bytes::new()).unwrap())
        };
        assert_eq!(requested("GET", "/status"), Some(Form::Page));
        assert_eq!(requested("HEAD", "/status.json?summary"), Some(Form::Document));
        assert_eq!((requested("POST", "/status"), requested("GET", "/status/")), (None, None));
    }

    #[test]
    fn a_recent_report_is_reused() {
        let latest = Latest::default();
        let first = latest.report(|_| 1);
        assert_eq!((*first, *latest.report(|_| 2)), (1, 1));
        *latest.0.lock().unwrap() = Instant::now().checked_sub(MAX_AGE).map(|time| (time, first));
        assert_eq!(*latest.report(|_| 2), 2);
    }
}
