//! An HTTP/1.1 server for the daemons, over any listener. Sizes, times and the number of connections are limited, and
//! connections are drained at shutdown.
//!
//! `health`, `metrics`, `agent` and `webhook` provide handlers, which get whole requests, not connections.

#![expect(clippy::disallowed_methods, reason = "records when a request arrived")]

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
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
pub use super::limits::Limits;
pub use super::message::{Request, Response, busy, closing, content, text};

/// The time at which a request's head was complete, as an extension of the request.
#[derive(Debug, Clone, Copy)]
pub struct Arrived(pub Instant);

/// Responds to requests.
pub trait Handler: Send + Sync + 'static {
    /// Returns the response to a request.
    fn handle(&self, request: Request) -> impl Future<Output = Response> + Send;

    /// Called after a request was refused.
    fn refused(&self, _: &Refusal) {}
}

impl<H, A> Handler for H
where
    H: Fn(Request) -> A + Send + Sync + 'static,
    A: Future<Output = Response> + Send,
{
    fn handle(&self, request: Request) -> impl Future<Output = Response> + Send {
        self(request)
    }
}

/// A source of connections.
pub trait Listener: Send + Sync + 'static {
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Returns the next connection of a permitted peer.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

/// A connection that is ready for requests, such as after a TLS handshake.
#[derive(Debug)]
pub struct Opened<S> {
    pub stream: S,
    /// Once this shutdown is requested, the connection ends after the HTTP request in progress, and no later one is
    /// handled. `None`: only the peer, the limits and the server's shutdown end the connection.
    pub ended: Option<Shutdown>,
}

/// The time for which connections may still send requests after shutdown is requested.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(100);
/// The smallest buffer limit that hyper accepts, in bytes.
const SMALLEST_BUFFER: usize = 8 << 10;
/// The pause after a failed `accept`, usually for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until shutdown is requested, and then drains: connections that were established before are still served.
pub async fn serve<L, H>(listener: L, limits: Limits, handler: H, shutdown: Shutdown)
where
    L: Listener,
    H: Handler,
{
    let open = |stream| std::future::ready(Ok(Opened { stream, ended: None }));
    serve_over(listener, limits, open, handler, shutdown).await;
}

/// Like [`serve`], over the streams that `open` creates from connections, such as TLS streams. Calls of `open` run
/// concurrently and must have a time limit.
pub async fn serve_over<L, O, F, S, H>(listener: L, limits: Limits, open: O, handler: H, shutdown: Shutdown)
where
    L: Listener,
    O: Fn(L::Stream) -> F,
    F: Future<Output = io::Result<Opened<S>>> + Send + 'static,
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
        tracing::warn!("connections with unfinished requests are closed at the end of the shutdown");
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
    /// Each connection holds a clone until it is closed, so that the channel closes after the last connection.
    alive: mpsc::Sender<Infallible>,
}

impl<H: Handler> Server<H> {
    fn spawn<S>(
        &self,
        opening: impl Future<Output = io::Result<Opened<S>>> + Send + 'static,
        slot: Option<OwnedSemaphorePermit>,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (service, shutdown) = (Arc::clone(&self.service), self.shutdown.clone());
        let kept = (slot, self.alive.clone());
        tokio::spawn(async move {
            match opening.await {
                Ok(opened) => run_connection(opened, service, shutdown).await,
                Err(error) => tracing::debug!(%error, "a connection could not be opened"),
            }
            drop(kept);
        });
    }
}

/// The phase of a connection, with the number of responses sent so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The peer has sent nothing since the last response.
    Idle(u64),
    /// The peer has sent a part of a request head.
    Head(u64),
    /// A request is read or handled.
    Request(u64),
}

impl Phase {
    fn begin_head(&mut self) -> bool {
        let Self::Idle(responses) = *self else { return false };
        *self = Self::Head(responses);
        true
    }

    fn begin_request(&mut self) {
        *self = Self::Request(self.responses());
    }

    fn end_request(&mut self) {
        *self = Self::Idle(self.responses() + 1);
    }

    fn responses(self) -> u64 {
        let (Self::Idle(responses) | Self::Head(responses) | Self::Request(responses)) = self;
        responses
    }
}

/// The connection has ended before a request. It is closed without a response to that request.
#[derive(Debug, thiserror::Error)]
#[error("the connection has ended before the request")]
struct Ended;

/// Serves one connection until it closes.
async fn run_connection<S, H>(opened: Opened<S>, service: Arc<Service<H>>, shutdown: Shutdown)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    H: Handler,
{
    let (Opened { stream, ended }, limits) = (opened, service.limits);
    let old = Arc::new(AtomicBool::new(false));
    let is_old = Arc::clone(&old);
    // The time limit of the first head starts with the connection.
    let phase = Arc::new(watch::Sender::new(Phase::Head(0)));
    let (begun, mut phases) = (Arc::clone(&phase), phase.subscribe());
    let inspect = move |_: &[u8]| {
        let _ = begun.send_if_modified(Phase::begin_head);
    };
    let stream = InspectReader::new(stream, inspect);
    let end = ended.clone();
    let respond = service_fn(move |request| {
        let (service, phase, last) = (Arc::clone(&service), Arc::clone(&phase), is_old.load(Ordering::Relaxed));
        // hyper may dispatch requests that have already arrived before the `select!` below observes that `ended` was
        // requested.
        let is_served = !end.as_ref().is_some_and(Shutdown::is_requested);
        async move {
            if !is_served {
                return Err(Ended);
            }
            phase.send_modify(Phase::begin_request);
            let response = service.respond(request).await;
            phase.send_modify(Phase::end_request);
            Ok(if last { closing(response) } else { response })
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.idle)
            .max_header_size(limits.head)
            // Also limits the bytes of a body that are read before memory is reserved for it.
            .max_buf_size(limits.head.max(SMALLEST_BUFFER))
            // The plugin closes the connection after it has sent log lines, without waiting for the response.
            .half_close(true)
            .serve_connection(TokioIo::new(with_write_timeout(stream, limits.read)), respond)
    );
    // Closing an idle connection may lose a request in transit. Therefore a connection that has reached its age limit
    // is closed after its next response, and without a request only after another `limits.idle`.
    let expiry = async {
        sleep(limits.connection).await;
        old.store(true, Ordering::Relaxed);
        sleep(limits.idle).await;
    };
    let shutdown_grace = async {
        shutdown.requested().await;
        sleep(SHUTDOWN_GRACE).await;
    };
    let ended = async {
        match ended {
            Some(ended) => ended.requested().await,
            None => std::future::pending().await,
        }
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
        () = ended => {}
        () = shutdown_grace => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(limits.request + SHUTDOWN_GRACE, connection).await;
}

/// Limits the time for which a peer may read nothing of a response.
fn with_write_timeout<S: AsyncRead + AsyncWrite>(stream: S, limit: Duration) -> Pin<Box<TimeoutStream<S>>> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limit));
    Box::pin(stream)
}

impl<H: Handler> Service<H> {
    async fn respond(&self, request: hyper::Request<Incoming>) -> Response {
        let (mut head, body) = request.into_parts();
        head.extensions.insert(Arrived(Instant::now()));
        let response = async {
            let body = body::read(body, &self.limits, &self.memory).await?;
            Ok(self.handler.handle(Request::from_parts(head, body)).await)
        };
        let response = timeout(self.limits.request, response).await;
        let refusal = match response.unwrap_or(Err(Refusal::Late(self.limits.request))) {
            Ok(response) => return response,
            Err(refusal) => refusal,
        };
        tracing::warn!(reason = refusal.as_str(), "{refusal}");
        self.handler.refused(&refusal);
        refusal.response()
    }
}

#[cfg(test)]
mod tests;
