//! Requests to answers: routes, what a request must look like, and who hears of the decision.
//!
//! `run` hands it to the server. It decides nothing about pods.
#![expect(clippy::disallowed_methods, reason = "measures how long an answer takes")]

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gotemplate::{Budget, Limits, Stop};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::Sender;
use tokio::time::{self, timeout_at};

use super::events::{self, Notice};
use super::metrics::Metrics;
use super::path;
use super::review::{AdmissionOutcome, Profile, Review, Verdict};
use super::threads::Threads;
use super::warnings::clipped;
use crate::serve::http::{Arrived, Handler, Refusal, Request, Response, busy, content, text};

/// Characters of a reason, in the log and in the answer: pods may hold annotations of 256 KiB.
const LONGEST_REASON: usize = 2048;
/// What is left of a review's time when it gets its turn, at least; half of its time where that is less.
const AT_WORK: Duration = Duration::from_secs(2);
/// The rule by which a review is refused that did not get its turn in time.
const TURN: &str = "turn";
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
    /// Where refusals become Events.
    notices: Option<Sender<Notice>>,
    /// How long after a request's arrival its answer is there.
    time: Duration,
    /// As many reviews are at work at once as there are processors; their memory is bounded by that, too.
    turns: Arc<Semaphore>,
    /// As many as turns.
    threads: Arc<Threads>,
}

impl Endpoint {
    /// Answers on these routes, and on `/ready`, within `time` of a request's arrival: a review that has no turn by then is
    /// refused, and so is one that is still at work.
    ///
    /// # Errors
    /// There can be no threads for reviews.
    pub fn new(routes: Vec<Route>, metrics: Metrics, time: Duration) -> io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let (turns, threads) = (Arc::new(Semaphore::new(processors)), Arc::new(Threads::new(processors)?));
        Ok(Self { routes: routes.into(), metrics, notices: None, time, turns, threads })
    }

    /// The same, whose outcomes are told to the owners of pods.
    pub(super) fn announcing(self, notices: Sender<Notice>) -> Self {
        Self { notices: Some(notices), ..self }
    }

    /// Reviews on one of [`Threads`]: the runtime's workers go on serving connections and probes meanwhile.
    async fn review(&self, profile: Arc<dyn Profile>, request: Request) -> Response {
        // Dropped with this future when the connection or its request's time ends.
        let stop = StopOnDrop(Stop::default());
        let (turn_by, done_by) = self.deadlines(&request);
        let Ok(turn) = timeout_at(turn_by, Arc::clone(&self.turns).acquire_owned()).await else {
            return self.without_turn(request.uri().path());
        };
        let (endpoint, budget) = (self.clone(), Budget::until(Limits::default(), stop.0.clone()));
        let mut work = self.threads.run(move || {
            let answer = endpoint.reviewed(&*profile, &request, budget);
            drop(turn);
            answer
        });
        let done = match timeout_at(done_by, &mut work).await {
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

    /// By when a review has its turn, and by when it is done: before the API server no longer waits.
    fn deadlines(&self, request: &Request) -> (time::Instant, time::Instant) {
        let arrived = request.extensions().get().map_or_else(time::Instant::now, |Arrived(arrived)| *arrived);
        // A fifth is left for the connection and the answer.
        let waits = path::timeout(request.uri().query()).map_or(self.time, |timeout| timeout.saturating_mul(4) / 5);
        let time = waits.min(self.time);
        (arrived + time - AT_WORK.min(time / 2), arrived + time)
    }

    fn without_turn(&self, path: &str) -> Response {
        let why = "other reviews took so long that the time of this one was over before its turn came; ask again";
        tracing::warn!(path, reason = TURN, "{why}");
        self.metrics.refused(TURN);
        busy(format!("{why}\n"))
    }

    /// The answer to a review, as text.
    fn reviewed(&self, profile: &dyn Profile, request: &Request, budget: Budget) -> String {
        let start = Instant::now();
        match Review::within(budget, request.body(), path::variables(request.uri().path())) {
            Ok(review) => {
                let mut outcome = review.decided_by(profile);
                outcome.reason = clipped(&outcome.reason, LONGEST_REASON);
                self.metrics.decided(&outcome, start.elapsed());
                log(&review, &outcome);
                if let (Some(notices), Some(notice)) = (&self.notices, events::notice(&review, &outcome)) {
                    // Many at once say the same.
                    let _ = notices.try_send(notice);
                }
                review.answer(&outcome)
            }
            Err(unreadable) => {
                self.metrics.failed();
                tracing::warn!(error = unreadable.reason(), uid = unreadable.uid, "a request cannot be answered");
                unreadable.answer()
            }
        }
    }
}

impl Handler for Endpoint {
    async fn answer(&self, request: Request) -> Response {
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

    fn refused(&self, refusal: &Refusal) {
        // Of others the request never came here.
        if !matches!(refusal, Refusal::Late(_)) {
            self.metrics.requested();
        }
        self.metrics.refused(refusal.word());
    }
}

/// Ends a review that nobody waits for any longer.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.set();
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

fn log(review: &Review, outcome: &AdmissionOutcome) {
    let (pod, decision, rule) = (review.subject(), outcome.verdict.as_str(), outcome.rule);
    match outcome.verdict {
        Verdict::Refuse => tracing::error!(pod, decision, rule, "{}", outcome.reason),
        _ => tracing::info!(pod, decision, rule, "{}", outcome.reason),
    }
}
