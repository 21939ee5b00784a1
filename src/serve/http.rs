//! An HTTP/1.1 server for the daemons, over any listener. Sizes, times and the number of connections are limited, and
//! connections are drained at shutdown.
//!
//! `health`, `metrics`, `agent` and `webhook` provide handlers, which get requests and no connections.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_util::io::InspectReader;

use super::body;
use super::memory::Memory;
use super::shutdown::Shutdown;

pub use super::body::Refusal;

/// A request with its whole body.
pub type Request = hyper::Request<Bytes>;
/// An answer with its whole body.
pub type Response = hyper::Response<Full<Bytes>>;

/// The limits of a server and of each peer.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Request line and header fields, bytes; more is answered with 431.
    pub head: usize,
    /// The body, bytes; more is answered with 413.
    pub body: usize,
    /// Bytes of all requests' bodies that are in memory at once, until their answers; a request beyond them is answered with 503.
    /// At least one body of the largest size fits.
    pub memory: usize,
    /// The number of simultaneous connections. Further ones wait in the kernel's queue.
    pub connections: usize,
    /// The time limit for a request head: for the first one from the connection on, for later ones from their first byte.
    pub first: Duration,
    /// The time limit for each further request head, from the end of the request before.
    pub idle: Duration,
    /// The time limit for a body; more is answered with 408. A body that takes longer than a quarter of a second is discarded,
    /// with 503, if others need its memory. Also the time for which a peer may read nothing of an answer.
    pub read: Duration,
    /// The time limit for reading a body and answering; more is answered with 408.
    pub request: Duration,
    /// The age of a connection after which the next answer is the last.
    pub connection: Duration,
    /// The time limit for requests in progress after shutdown is requested.
    pub drain: Duration,
}

impl Default for Limits {
    /// Limits for requests without a body.
    fn default() -> Self {
        Self {
            head: 16 << 10,
            body: 4 << 10,
            memory: 256 << 10,
            connections: 64,
            first: Duration::from_secs(5),
            idle: Duration::from_secs(30),
            read: Duration::from_secs(5),
            request: Duration::from_secs(10),
            connection: Duration::from_secs(300),
            drain: Duration::from_secs(5),
        }
    }
}

/// The time at which a request's head was complete, as an extension of the request.
#[derive(Debug, Clone, Copy)]
pub struct Arrived(pub Instant);

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// The answer to a request.
    fn answer(&self, request: Request) -> impl Future<Output = Response> + Send;

    /// Notes that a request was answered with a refusal.
    fn refused(&self, _: &Refusal) {}
}

impl<H, A> Handler for H
where
    H: Fn(Request) -> A + Send + Sync + 'static,
    A: Future<Output = Response> + Send,
{
    fn answer(&self, request: Request) -> impl Future<Output = Response> + Send {
        self(request)
    }
}

/// A source of connections.
pub trait Listener: Send + Sync + 'static {
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Returns the next connection of a permitted peer.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

/// A plain text answer.
pub fn text(status: StatusCode, text: impl Into<Bytes>) -> Response {
    content(status, header::HeaderValue::from_static("text/plain; charset=utf-8"), text)
}

/// An answer of the media type `kind`.
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

/// The answer 503 of a server that has reached one of its limits. `Retry-After` makes clients of API servers repeat the request
/// after a second, over another connection, which may lead to another replica.
pub fn busy(why: impl Into<Bytes>) -> Response {
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, why);
    response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    closing(response)
}

/// The time for which connections may still send requests after shutdown is requested.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(100);
/// The smallest buffer limit that hyper accepts, in bytes.
const SMALLEST_BUFFER: usize = 8 << 10;
/// The pause after a failed `accept`, usually for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until shutdown is requested, and then drains: connections that were established before are served.
pub async fn serve<L, H>(listener: L, limits: Limits, handler: H, shutdown: Shutdown)
where
    L: Listener,
    H: Handler,
{
    serve_over(listener, limits, |stream| std::future::ready(Ok(stream)), handler, shutdown).await;
}

/// Like [`serve`], over the streams that `open` creates from connections, such as TLS. Connections open concurrently; `open`
/// must have a time limit.
pub async fn serve_over<L, O, F, S, H>(listener: L, limits: Limits, open: O, handler: H, shutdown: Shutdown)
where
    L: Listener,
    O: Fn(L::Stream) -> F,
    F: Future<Output = io::Result<S>> + Send + 'static,
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    H: Handler,
{
    let slots = Arc::new(Semaphore::new(limits.connections));
    let (alive, mut all_closed) = mpsc::channel(1);
    let service = Arc::new(Service { limits, memory: Memory::new(limits.memory, limits.body), handler });
    let server = Server { service, shutdown: shutdown.clone(), alive };
    loop {
        let next = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            (slot, listener.accept().await)
        };
        let (slot, accepted) = tokio::select! {
            biased;
            () = shutdown.requested() => break,
            next = next => next,
        };
        match accepted {
            Ok(stream) => server.spawn(open(stream), slot.ok()),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    while let Some(Ok(stream)) = listener.accept().now_or_never() {
        server.spawn(open(stream), None);
    }
    drop((listener, server));
    if timeout(limits.drain + SHUTDOWN_GRACE, all_closed.recv()).await.is_err() {
        tracing::warn!("connections were still busy at the end and are cut off");
    }
}

/// The state that all connections share.
struct Service<H> {
    limits: Limits,
    memory: Memory,
    handler: H,
}

struct Server<H> {
    service: Arc<Service<H>>,
    shutdown: Shutdown,
    /// Each connection has a clone.
    alive: mpsc::Sender<Infallible>,
}

impl<H: Handler> Server<H> {
    fn spawn<S>(
        &self,
        opening: impl Future<Output = io::Result<S>> + Send + 'static,
        slot: Option<OwnedSemaphorePermit>,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (service, shutdown) = (Arc::clone(&self.service), self.shutdown.clone());
        let kept = (slot, self.alive.clone());
        tokio::spawn(async move {
            match opening.await {
                Ok(stream) => run_connection(stream, service, shutdown).await,
                Err(error) => tracing::debug!(%error, "a connection could not be opened"),
            }
            drop(kept);
        });
    }
}

/// The phase of a connection, with the number of requests that have been answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The peer has sent nothing since the last answer.
    Idle(u64),
    /// The peer has sent a part of a request head.
    Head(u64),
    /// A request is read or answered.
    Request(u64),
}

impl Phase {
    fn begin_head(&mut self) -> bool {
        let Self::Idle(answered) = *self else { return false };
        *self = Self::Head(answered);
        true
    }

    fn begin_answer(&mut self) {
        *self = Self::Request(self.answered());
    }

    fn end_answer(&mut self) {
        *self = Self::Idle(self.answered() + 1);
    }

    fn answered(self) -> u64 {
        let (Self::Idle(answered) | Self::Head(answered) | Self::Request(answered)) = self;
        answered
    }
}

/// Serves one connection until it closes.
async fn run_connection<S, H>(stream: S, service: Arc<Service<H>>, shutdown: Shutdown)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    H: Handler,
{
    let limits = service.limits;
    let old = Arc::new(AtomicBool::new(false));
    let is_old = Arc::clone(&old);
    // The time limit of the first head starts with the connection.
    let phase = Arc::new(watch::Sender::new(Phase::Head(0)));
    let (begun, mut phases) = (Arc::clone(&phase), phase.subscribe());
    let inspect = move |_: &[u8]| {
        let _ = begun.send_if_modified(Phase::begin_head);
    };
    let stream = InspectReader::new(stream, inspect);
    let respond = service_fn(move |request| {
        let (service, phase, last) = (Arc::clone(&service), Arc::clone(&phase), is_old.load(Ordering::Relaxed));
        async move {
            phase.send_modify(Phase::begin_answer);
            let response = service.respond(request).await;
            phase.send_modify(Phase::end_answer);
            Ok::<_, Infallible>(if last { closing(response) } else { response })
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.idle)
            .max_header_size(limits.head)
            // Also limits the bytes of a body that are read before memory is reserved for it.
            .max_buf_size(limits.head.max(SMALLEST_BUFFER))
            // The plugin does not wait for an answer to its log lines.
            .half_close(true)
            .serve_connection(TokioIo::new(with_write_timeout(stream, limits.read)), respond)
    );
    // An idle connection that is closed may lose a request in transit, so it is closed after a last answer if possible.
    let expiry = async {
        sleep(limits.connection).await;
        old.store(true, Ordering::Relaxed);
        sleep(limits.idle).await;
    };
    let shutdown_grace = async {
        shutdown.requested().await;
        sleep(SHUTDOWN_GRACE).await;
    };
    let unfinished_head = async {
        while let Ok(head) = phases.wait_for(|phase| matches!(phase, Phase::Head(_))).await.map(|phase| *phase)
            && timeout(limits.first, phases.wait_for(|phase| *phase != head)).await.is_ok()
        {}
    };
    tokio::select! {
        // A peer's connection error affects no other connection.
        _ = connection.as_mut() => return,
        () = unfinished_head => return,
        () = expiry => {}
        () = shutdown_grace => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(limits.request + SHUTDOWN_GRACE, connection).await;
}

/// Limits the time for which a peer may read nothing of an answer.
fn with_write_timeout<S: AsyncRead + AsyncWrite>(stream: S, limit: Duration) -> Pin<Box<TimeoutStream<S>>> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limit));
    Box::pin(stream)
}

impl<H: Handler> Service<H> {
    async fn respond(&self, request: hyper::Request<Incoming>) -> Response {
        let (mut head, body) = request.into_parts();
        head.extensions.insert(Arrived(Instant::now()));
        let answer = async {
            let body = body::read(body, &self.limits, &self.memory).await?;
            Ok(self.handler.answer(Request::from_parts(head, body)).await)
        };
        let answer = timeout(self.limits.request, answer).await;
        let refusal = match answer.unwrap_or(Err(Refusal::Late(self.limits.request))) {
            Ok(response) => return response,
            Err(refusal) => refusal,
        };
        tracing::warn!(reason = refusal.as_str(), "{refusal}");
        self.handler.refused(&refusal);
        refusal.answer()
    }
}
