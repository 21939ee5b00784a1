//! One connection of a ztunnel, from its hello to its end.

#![expect(clippy::disallowed_methods, reason = "owns the clock of the last request")]

use std::convert::Infallible;
use std::future::Future;
use std::os::fd::AsFd as _;
use std::time::Duration;

use contract::diagnostics;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::message::{self, Request, Response};
use super::packet::{self, Packets};
use super::pod_netns::PodNetns;
use super::session::{Next, Responded, Session, Violation};
use super::state::Id;
use super::ztunnels::{Queue, Update, Ztunnels};

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Closed {
    #[error(transparent)]
    Packet(#[from] packet::Error),
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error(transparent)]
    Hello(#[from] message::Error),
    /// ztunnel did not act in time. The connection ends, because a late response would be taken for the response to another request.
    #[error("ztunnel has not {what} within {limit:?}; ztunnel opens a new connection, and its log has the reason")]
    TimedOut { what: &'static str, limit: Duration },
    /// The agent removed the connection: too many requests wait for this ztunnel, or too many newer connections
    /// are open.
    #[error("too many requests waited for this ztunnel, or too many newer connections of ztunnel are open")]
    Removed,
}

impl Closed {
    /// Returns the reason as a metric label.
    fn reason(&self) -> &'static str {
        match self {
            Self::Packet(packet::Error::Closed) => "closed",
            Self::Packet(packet::Error::Io(_)) => "error",
            Self::Packet(packet::Error::TooLong | packet::Error::Descriptors) | Self::Violation(_) | Self::Hello(_) => {
                "violation"
            }
            Self::TimedOut { .. } => "timeout",
            Self::Removed => "removed",
        }
    }
}

type Caller = oneshot::Sender<Response>;

/// Serves a connection until it ends.
pub(super) async fn run(ztunnels: Ztunnels, socket: UnixStream) {
    let Err(closed) = serve(&ztunnels, &Packets::new(socket)).await;
    ztunnels.metrics().closed(closed.reason());
    match closed {
        Closed::Packet(packet::Error::Closed) => tracing::info!("ztunnel disconnected"),
        closed => tracing::warn!(error = diagnostics::chain(&closed), "ztunnel was disconnected"),
    }
}

async fn serve(ztunnels: &Ztunnels, packets: &Packets) -> Result<Infallible, Closed> {
    let hello = within("sent its first message", ztunnels.limits().hello, packets.receive()).await?;
    let version = message::hello(&hello)?;
    let (updates, mut queued) = mpsc::channel(ztunnels.limits().queue);
    let (_removed, removed) = oneshot::channel();
    // `member` is declared after `queued` and therefore dropped before it: this connection is removed before the
    // callers of requests in the queue are notified, so that they send their requests to the connection that is the
    // newest by then.
    let (member, snapshot) = ztunnels.join(Queue { updates, _removed });
    tracing::info!(
        connection = %member.id,
        version,
        pods = snapshot.len() - 1,
        "new ztunnel connected, total connected: {}",
        ztunnels.connected()
    );
    let (session, sent) = (Session::new(snapshot), Instant::now());
    let connection = Connection { ztunnels, packets, session, sent, id: member.id, in_snapshot: true };
    tokio::select! {
        ended = connection.exchange(&mut queued) => ended,
        _ = removed => Err(Closed::Removed),
    }
}

/// A connection whose ztunnel has sent its `ZdsHello`.
struct Connection<'a> {
    ztunnels: &'a Ztunnels,
    packets: &'a Packets,
    session: Session<PodNetns, Caller>,
    /// The time of the last request.
    sent: Instant,
    /// Identifies the connection in the log.
    id: Id,
    /// Whether the end of the snapshot is still to be sent.
    in_snapshot: bool,
}

impl Connection<'_> {
    async fn exchange(mut self, updates: &mut mpsc::Receiver<Update>) -> Result<Infallible, Closed> {
        loop {
            match self.session.advance() {
                Next::Send(request) => self.send(&request).await?,
                Next::Receive => {
                    let packet = within("responded", self.ztunnels.limits().response, self.packets.receive()).await?;
                    let responded = self.session.received(&packet)?;
                    self.report(responded);
                }
                Next::Update => match self.update(updates).await? {
                    update if update.is_abandoned() => {}
                    Update::Missed(requests) => self.session.append(requests),
                    Update::Request { request, caller } => {
                        self.send(&request).await?;
                        self.session.sent(&request, caller);
                    }
                },
            }
        }
    }

    /// Waits for an update. Receives packets at the same time, because only a receive operation reports the end of the
    /// connection.
    async fn update(&mut self, updates: &mut mpsc::Receiver<Update>) -> Result<Update, Closed> {
        tokio::select! {
            biased;
            packet = self.packets.receive() => {
                self.session.received(&packet?)?;
                Err(Violation::Unrequested.into())
            }
            update = updates.recv() => update.ok_or(Closed::Removed),
        }
    }

    /// Logs a request with Istio's messages, which operators search for.
    fn log(&mut self, request: &Request<PodNetns>) {
        let (connection, uid) = (tracing::field::display(self.id), request.uid().map(tracing::field::display));
        match request {
            Request::Add { workload, .. } => {
                let (ns, name) = (&workload.names().namespace, &workload.names().name);
                match self.in_snapshot {
                    true => tracing::info!(connection, ns, name, uid, "sending pod to ztunnel as part of snapshot"),
                    false => tracing::info!(connection, ns, name, uid, "sending pod add to ztunnel"),
                }
            }
            Request::Keep { .. } => {
                tracing::info!(connection, uid, "netns is not available for pod, sending 'keep' to ztunnel");
            }
            Request::Del { .. } => tracing::info!(connection, uid, "sending pod delete to ztunnel"),
            Request::SnapshotSent => self.in_snapshot = false,
        }
    }

    async fn send(&mut self, request: &Request<PodNetns>) -> Result<(), Closed> {
        self.log(request);
        // A packet that has already arrived would be taken for the response to this request.
        if self.packets.received()?.is_some() {
            return Err(Violation::Unrequested.into());
        }
        let descriptor = request.netns().map(PodNetns::as_fd);
        let packet = request.encode();
        self.sent = Instant::now();
        within("read a request", self.ztunnels.limits().send, self.packets.send(&packet, descriptor)).await
    }

    /// Passes a response to the caller that waits for it.
    fn report(&self, responded: Responded<Caller>) {
        let Responded { request, caller, response } = responded;
        let error = match &response {
            Response::Ack => None,
            Response::Nack(error) => Some(error),
        };
        self.ztunnels.metrics().responded(request.kind, self.sent.elapsed(), error.is_some());
        if let Some(error) = error {
            let connection = tracing::field::display(self.id);
            tracing::warn!(connection, uid = request.uid, request = request.kind, error, "ztunnel refused a request");
        }
        // A caller that has ended needs no response.
        let _ = caller.map(|caller| caller.send(response));
    }
}

/// Limits the time of an operation.
async fn within<T>(
    what: &'static str,
    limit: Duration,
    operation: impl Future<Output = Result<T, packet::Error>>,
) -> Result<T, Closed> {
    timeout(limit, operation).await.map_err(|_| Closed::TimedOut { what, limit })?.map_err(Closed::from)
}
