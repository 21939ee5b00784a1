//! `/healthz` reports threads that hang and conditions that only a restart ends; `/readyz` reports parts that are not ready, with the reasons.
//!
//! The daemon's parts report to [`Liveness`] and [`Readiness`]; probes read them.
#![expect(clippy::disallowed_methods, reason = "owns the clock of the threads' deadlines")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use tokio::sync::watch;

use super::http::{Request, Response, text};

/// The reasons of parts that are not ready, by part.
type Parts = BTreeMap<&'static str, String>;

/// The parts of a daemon that are not ready, with the reason for each; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<watch::Sender<Parts>>);

impl Readiness {
    /// Creates a readiness in which these parts are not ready until they report.
    pub fn awaiting(parts: &[&'static str]) -> Self {
        let parts = parts.iter().map(|part| (*part, "starting".to_owned())).collect();
        Self(Arc::new(watch::Sender::new(parts)))
    }

    /// Marks a part as ready.
    pub fn ready(&self, part: &'static str) {
        self.0.send_if_modified(|parts| parts.remove(part).is_some());
    }

    /// Marks a part as not ready.
    pub fn missing(&self, part: &'static str, why: impl Into<String>) {
        let why = why.into();
        self.0.send_if_modified(|parts| parts.insert(part, why.clone()).as_ref() != Some(&why));
    }

    /// Whether all parts other than these are ready.
    pub fn lacks_at_most(&self, parts: &[&'static str]) -> bool {
        self.0.borrow().keys().all(|part| parts.contains(part))
    }

    /// Returns a line for each part that is not ready; `None` if all are.
    pub fn report(&self) -> Option<String> {
        lines(&self.0.borrow())
    }

    /// Waits until `holds` returns true for the [report](Self::report).
    pub async fn until(&self, holds: impl Fn(Option<&str>) -> bool) {
        // `self` owns the sender, so the channel is open.
        let _ = self.0.subscribe().wait_for(|parts| holds(lines(parts).as_deref())).await;
    }
}

fn lines(parts: &Parts) -> Option<String> {
    (!parts.is_empty()).then(|| {
        parts.iter().fold(String::new(), |mut lines, (part, why)| {
            // Writing to a string cannot fail.
            let _ = writeln!(lines, "{part}: {why}");
            lines
        })
    })
}

/// The deadlines by which threads must report again; clones share them. A process cannot end a thread that hangs in a
/// system call, but the kubelet can restart the process.
#[derive(Debug, Clone, Default)]
pub struct Liveness(Arc<Mutex<BTreeMap<&'static str, State>>>);

/// The last report of a thread or a part.
#[derive(Debug)]
enum State {
    /// The thread must report again by this time.
    Due(Instant),
    /// Only a restart ends the condition.
    Failed(String),
}

impl Liveness {
    fn threads(&self) -> MutexGuard<'_, BTreeMap<&'static str, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a thread is alive and will report again within `limit`.
    pub fn alive(&self, thread: &'static str, limit: Duration) {
        self.threads().insert(thread, State::Due(Instant::now() + limit));
    }

    /// Records a condition that only a restart of the process ends.
    pub fn failed(&self, part: &'static str, why: impl Into<String>) {
        self.threads().insert(part, State::Failed(why.into()));
    }

    /// Removes a thread that ended as intended, or a part whose condition has ended.
    pub fn ended(&self, thread: &'static str) {
        self.threads().remove(thread);
    }

    /// Returns a line for each thread that missed its deadline and each failed part; `None` if there is none.
    pub fn report(&self) -> Option<String> {
        let (now, threads) = (Instant::now(), self.threads());
        let line = |(part, state): (&&'static str, &State)| match state {
            State::Due(due) => (*due < now).then(|| format!("{part}: late by {} s\n", (now - *due).as_secs())),
            State::Failed(why) => Some(format!("{part}: {why}\n")),
        };
        let lines: String = threads.iter().filter_map(line).collect();
        (!lines.is_empty()).then_some(lines)
    }
}

pub fn respond(request: &Request, readiness: &Readiness, liveness: &Liveness) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "probes require GET\n");
    }
    match request.uri().path() {
        "/healthz" => match liveness.report() {
            None => text(StatusCode::OK, "ok\n"),
            Some(late) => text(StatusCode::SERVICE_UNAVAILABLE, late),
        },
        "/readyz" => match readiness.report() {
            None => text(StatusCode::OK, "ok\n"),
            Some(missing) => text(StatusCode::SERVICE_UNAVAILABLE, missing),
        },
        _ => text(StatusCode::NOT_FOUND, "paths are /healthz and /readyz\n"),
    }
}

#[cfg(test)]
mod tests {
    use hyper::body::Bytes;

    use super::*;

    fn status(path: &str, readiness: &Readiness) -> u16 {
        status_of(path, readiness, &Liveness::default())
    }

    fn status_of(path: &str, readiness: &Readiness, liveness: &Liveness) -> u16 {
        respond(&hyper::Request::get(path).body(Bytes::new()).unwrap(), readiness, liveness).status().as_u16()
    }

    #[test]
    fn a_thread_that_misses_its_deadline_is_reported_until_it_reports() {
        let (readiness, liveness) = (Readiness::default(), Liveness::default());
        liveness.alive("installer", Duration::ZERO);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(liveness.report().unwrap(), "installer: late by 0 s\n");
        assert_eq!(
            (status_of("/healthz", &readiness, &liveness), status_of("/readyz", &readiness, &liveness)),
            (503, 200)
        );
        liveness.alive("installer", Duration::from_secs(60));
        assert_eq!(status_of("/healthz", &readiness, &liveness), 200);
        liveness.alive("installer", Duration::ZERO);
        liveness.ended("installer");
        assert_eq!((status_of("/healthz", &readiness, &liveness), liveness.report()), (200, None));
    }

    #[test]
    fn a_failed_part_is_reported_until_its_condition_ends() {
        let (readiness, liveness) = (Readiness::default(), Liveness::default());
        liveness.failed("mounts", "/x was removed");
        assert_eq!(liveness.report().unwrap(), "mounts: /x was removed\n");
        assert_eq!(status_of("/healthz", &readiness, &liveness), 503);
        liveness.ended("mounts");
        assert_eq!(status_of("/healthz", &readiness, &liveness), 200);
    }

    #[test]
    fn is_ready_if_all_parts_are_ready() {
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
