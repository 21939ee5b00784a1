//! Requests to answers: routes, what a request must look like, and who hears of the decision.
//!
//! `run` hands it to the server. It decides nothing about pods.
#![expect(clippy::disallowed_methods, reason = "measures how long an answer takes")]

use std::sync::Arc;
use std::time::Instant;

use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};

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
}

impl Endpoint {
    /// Answers on these routes, and on `/ready`.
    pub fn new(routes: Vec<Route>, metrics: Metrics) -> Self {
        Self { routes: routes.into(), metrics }
    }

    /// Answers a request.
    pub fn answer(&self, request: &Request) -> Response {
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
        match readable(request) {
            Ok(()) => self.review(route, request),
            Err((status, why)) => {
                self.metrics.failed();
                text(status, why)
            }
        }
    }

    fn review(&self, route: &Route, request: &Request) -> Response {
        let start = Instant::now();
        let answer = match Review::parse(request.body(), path::variables(request.uri().path())) {
            Ok(review) => {
                let mut outcome = route.profile.review(&review);
                outcome.reason = clipped(&outcome.reason, LONGEST_REASON);
                self.metrics.decided(&outcome, start.elapsed());
                log(&review, &outcome);
                review.answer(&outcome)
            }
            Err(unreadable) => {
                self.metrics.failed();
                tracing::warn!(error = %unreadable.error, uid = unreadable.uid, "a request cannot be answered");
                unreadable.answer()
            }
        };
        content(StatusCode::OK, JSON, answer)
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
