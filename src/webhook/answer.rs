//! Requests to answers: routes, what a request must look like, and who hears of the decision.
//!
//! `run` hands it to the server. It decides nothing about pods.
#![expect(clippy::disallowed_methods, reason = "measures how long an answer takes")]

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gotemplate::{Budget, Limits, Stop};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::metrics::Metrics;
use super::path;
use super::review::{Outcome, Profile, Review, Verdict};
use super::warnings::clipped;
use crate::serve::http::{Request, Response, content, text};

/// Characters of a reason, in the log and in the answer: pods may hold annotations of 256 KiB.
const LONGEST_REASON: usize = 2048;
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A path and what is behind it.
#[derive(Clone)]
pub struct Route {
    /// Such as `/inject`.
    pub path: &'static str,
    /// Whether all paths below it lead here, too.
    pub below: bool,
    /// Who decides.
    pub profile: Arc<dyn Profile>,
}

/// All routes of a server.
#[derive(Clone)]
pub struct Endpoint {
    routes: Arc<[Route]>,
    metrics: Metrics,
    /// How long a review may be at work.
    time: Duration,
    /// As many reviews are at work at once as there are processors; their memory is bounded by that, too.
    turns: Arc<Semaphore>,
}

impl Endpoint {
    /// Answers on these routes, and on `/ready`. A review that works longer than `time` is refused.
    pub fn new(routes: Vec<Route>, metrics: Metrics, time: Duration) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self { routes: routes.into(), metrics, time, turns: Arc::new(Semaphore::new(processors)) }
    }

    /// Answers a request.
    pub async fn answer(&self, request: Request) -> Response {
        let path = request.uri().path();
        if path == "/ready" {
            return text(StatusCode::OK, "");
        }
        let leads = |route: &&Route| {
            path.strip_prefix(route.path).is_some_and(|rest| rest.is_empty() || (route.below && rest.starts_with('/')))
        };
        let Some(route) = self.routes.iter().find(leads) else {
            return text(StatusCode::NOT_FOUND, "nothing is injected here\n");
        };
        self.metrics.requested();
        match readable(&request) {
            Ok(()) => self.review(Arc::clone(&route.profile), request).await,
            Err((status, why)) => {
                self.metrics.failed();
                text(status, why)
            }
        }
    }

    /// Reviews on a thread of its own: the runtime's workers go on serving connections and probes meanwhile.
    async fn review(&self, profile: Arc<dyn Profile>, request: Request) -> Response {
        // Dropped with this future when the connection or its request's time ends.
        let stop = StopOnDrop(Stop::default());
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let (metrics, budget) = (self.metrics.clone(), Budget::until(Limits::default(), stop.0.clone()));
        let mut work = spawn_blocking(move || {
            let answer = reviewed(&*profile, &request, &metrics, budget);
            drop(turn);
            answer
        });
        let done = match timeout(self.time, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                stop.0.set();
                work.await
            }
        };
        match done {
            Ok(answer) => content(StatusCode::OK, JSON, answer),
            Err(error) => {
                self.metrics.failed();
                tracing::error!(%error, "a review ended without an answer");
                text(StatusCode::INTERNAL_SERVER_ERROR, "the review ended without an answer\n")
            }
        }
    }
}

/// Ends a review that nobody waits for any longer.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// The answer to a review, as text.
fn reviewed(profile: &dyn Profile, request: &Request, metrics: &Metrics, budget: Budget) -> String {
    let start = Instant::now();
    match Review::within(budget, request.body(), path::variables(request.uri().path())) {
        Ok(review) => {
            let mut outcome = review.decided_by(profile);
            outcome.reason = clipped(&outcome.reason, LONGEST_REASON);
            metrics.decided(&outcome, start.elapsed());
            log(&review, &outcome);
            review.answer(&outcome)
        }
        Err(unreadable) => {
            metrics.failed();
            tracing::warn!(error = %unreadable.error, uid = unreadable.uid, "a request cannot be answered");
            unreadable.answer()
        }
    }
}

/// What the API server sends looks so; whoever sends something else hears what is wrong with it.
fn readable(request: &Request) -> Result<(), (StatusCode, &'static str)> {
    if request.method() != Method::POST {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "reviews are posted\n"));
    }
    if request.body().is_empty() {
        return Err((StatusCode::BAD_REQUEST, "no body found\n"));
    }
    if request.headers().get(CONTENT_TYPE) != Some(&JSON) {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid Content-Type, want `application/json`\n"));
    }
    Ok(())
}

fn log(review: &Review, outcome: &Outcome) {
    let (pod, decision, rule) = (review.subject(), outcome.verdict.as_str(), outcome.rule);
    match outcome.verdict {
        Verdict::Refuse => tracing::error!(pod, decision, rule, "{}", outcome.reason),
        _ => tracing::info!(pod, decision, rule, "{}", outcome.reason),
    }
}
