//! Serves admission reviews: selects the route, checks the request, runs the review on a thread, and reports the
//! outcome to log, metrics and Events.
//!
//! `server` passes an [`Endpoint`] to `serve::http`. The route's [`Profile`] decides about the pod.
#![expect(clippy::disallowed_methods, reason = "measures the time of a response")]

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gotemplate::{Budget, Limits, Stop};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};
use serve::http::{Arrived, Handler, Refusal, Request, Response, busy, content, text};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::Sender;
use tokio::time::{self, timeout_at};

use super::events::{self, Notice};
use super::metrics::Metrics;
use super::path;
use super::review::{AdmissionOutcome, Profile, Review, Verdict};
use super::threads::Threads;
use super::warnings::clipped;

/// The maximum length of a reason in log and response, in characters; longer reasons are cut. A reason may quote an
/// annotation, and a pod may have annotations of 256 KiB.
const LONGEST_REASON: usize = 2048;
/// The time that is reserved for the work on a thread at the end of a review's time limit; at most half of the limit. A
/// review that still waits for a thread when this time begins is refused.
const MIN_WORK_TIME: Duration = Duration::from_secs(2);
/// The rule, in log and metrics, of a review that is refused because no thread became free in time.
const NO_THREAD: &str = "turn";
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A path with its profile.
#[derive(Clone)]
pub struct Route {
    /// The path, such as `/inject`.
    pub path: &'static str,
    /// Whether the route includes all paths below `path`.
    pub below: bool,
    /// Decides about reviews.
    pub profile: Arc<dyn Profile>,
}

/// All routes of a server.
#[derive(Clone)]
pub struct Endpoint {
    routes: Arc<[Route]>,
    metrics: Metrics,
    /// The channel for Events about refusals and warnings.
    notices: Option<Sender<Notice>>,
    /// The time limit from a request's arrival to its response.
    time: Duration,
    /// The permits of concurrent reviews, one per processor. Their number also bounds the memory of all reviews.
    permits: Arc<Semaphore>,
    /// The threads of reviews, one for each permit.
    threads: Arc<Threads>,
}

impl Endpoint {
    /// Creates an endpoint for these routes and `/ready`. It responds within `time` of a request's arrival: a review
    /// that gets no thread in time is refused, and a review that is still running at the end is stopped and refused.
    ///
    /// # Errors
    /// The threads of reviews cannot be created.
    pub fn new(routes: Vec<Route>, metrics: Metrics, time: Duration) -> io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let (permits, threads) = (Arc::new(Semaphore::new(processors)), Arc::new(Threads::new(processors)?));
        Ok(Self { routes: routes.into(), metrics, notices: None, time, permits, threads })
    }

    /// Adds a channel for Events on the owners of pods.
    pub(super) fn announcing(self, notices: Sender<Notice>) -> Self {
        Self { notices: Some(notices), ..self }
    }

    /// Reviews a request on one of the [`Threads`], so that the runtime's workers can serve connections and probes
    /// meanwhile.
    async fn review(&self, profile: Arc<dyn Profile>, request: Request) -> Response {
        // This future is dropped when the connection or the request's time ends. `StopOnDrop` then also stops the
        // review on its thread.
        let stop = StopOnDrop(Stop::default());
        let (start_by, end_by) = self.deadlines(&request);
        let Ok(permit) = timeout_at(start_by, Arc::clone(&self.permits).acquire_owned()).await else {
            return self.without_thread(request.uri().path());
        };
        let (endpoint, budget) = (self.clone(), Budget::until(Limits::default(), stop.0.clone()));
        let mut work = self.threads.run(move || {
            let response = endpoint.reviewed(&*profile, &request, budget);
            drop(permit);
            response
        });
        let done = match timeout_at(end_by, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                stop.0.set();
                work.await
            }
        };
        match done {
            Ok(review) => content(StatusCode::OK, JSON, review),
            Err(error) => {
                self.metrics.failed();
                tracing::error!(%error, "a review ended without a response");
                text(StatusCode::INTERNAL_SERVER_ERROR, "the review ended without a response\n")
            }
        }
    }

    /// Returns the deadlines by which a review must start and end, before the API server's timeout.
    fn deadlines(&self, request: &Request) -> (time::Instant, time::Instant) {
        let arrived = request.extensions().get().map_or_else(time::Instant::now, |Arrived(arrived)| *arrived);
        // A fifth of the API server's timeout remains for the connection and the response.
        let waits = path::timeout(request.uri().query()).map_or(self.time, |timeout| timeout.saturating_mul(4) / 5);
        let time = waits.min(self.time);
        (arrived + time - MIN_WORK_TIME.min(time / 2), arrived + time)
    }

    fn without_thread(&self, path: &str) -> Response {
        let why = "the time of this review ended while others ran: send the request again";
        tracing::warn!(path, reason = NO_THREAD, "{why}");
        self.metrics.refused(NO_THREAD);
        busy(format!("{why}\n"))
    }

    /// Reviews a request and returns the response as JSON.
    fn reviewed(&self, profile: &dyn Profile, request: &Request, budget: Budget) -> String {
        let start = Instant::now();
        match Review::within(budget, request.body(), path::variables(request.uri().path())) {
            Ok(review) => {
                let mut outcome = review.decided_by(profile);
                outcome.reason = clipped(&outcome.reason, LONGEST_REASON);
                let pod = review.subject();
                self.metrics.decided(&pod, &outcome, start.elapsed());
                log(&pod, &outcome);
                if let (Some(notices), Some(notice)) = (&self.notices, events::notice(&review, &outcome)) {
                    // If the channel is full, the notice is dropped: the notices in it are likely to report the same
                    // problem.
                    let _ = notices.try_send(notice);
                }
                review.response(&outcome)
            }
            Err(unreadable) => {
                self.metrics.failed();
                tracing::warn!(
                    error = unreadable.reason(),
                    uid = unreadable.uid,
                    "a request cannot be read as an AdmissionReview"
                );
                unreadable.response()
            }
        }
    }
}

impl Handler for Endpoint {
    async fn handle(&self, request: Request) -> Response {
        let path = request.uri().path();
        if path == "/ready" {
            return text(StatusCode::OK, "");
        }
        let matches = |route: &&Route| {
            path.strip_prefix(route.path).is_some_and(|rest| rest.is_empty() || (route.below && rest.starts_with('/')))
        };
        let Some(route) = self.routes.iter().find(matches) else {
            return text(StatusCode::NOT_FOUND, "no injection is served at this path\n");
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
        // `handle` counts each request that it gets, including those that are refused as late. Requests with other
        // refusals never reach `handle`, so they are counted here.
        if !matches!(refusal, Refusal::Late(_)) {
            self.metrics.requested();
        }
        self.metrics.refused(refusal.as_str());
    }
}

/// Stops a review when it is dropped, because the client no longer waits for the response.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Checks that a request has the method and the content type that API servers send, and a body. Otherwise returns the
/// status and the message of the response.
fn readable(request: &Request) -> Result<(), (StatusCode, &'static str)> {
    if request.method() != Method::POST {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "the method must be POST\n"));
    }
    if request.body().is_empty() {
        return Err((StatusCode::BAD_REQUEST, "no body found\n"));
    }
    if request.headers().get(CONTENT_TYPE) != Some(&JSON) {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid Content-Type, want `application/json`\n"));
    }
    Ok(())
}

fn log(pod: &str, outcome: &AdmissionOutcome) {
    let (decision, rule) = (outcome.verdict.as_str(), outcome.rule);
    match outcome.verdict {
        Verdict::Refuse => tracing::error!(pod, decision, rule, "{}", outcome.reason),
        _ => tracing::info!(pod, decision, rule, "{}", outcome.reason),
    }
}
