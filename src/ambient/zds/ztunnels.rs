//! The node's ztunnels: records changes of the enrolled pods and sends them to each connection.
//!
//! No change waits for a queue: a connection whose queue is full is too slow and is closed. Its ztunnel connects again and gets a
//! snapshot.

use std::convert::Infallible;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::message::{Request, Response, Uid};
use super::metrics::Metrics;
use super::pod_netns::PodNetns;
use super::registry::Enrolled;
use super::state::{Id, Joined, State};

/// The limits of a connection with a ztunnel.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The time from the connection until the hello.
    pub hello: Duration,
    /// The time within which ztunnel must read a packet.
    pub send: Duration,
    /// The time from a request until its response.
    pub response: Duration,
    /// The shortest interval between two accepted connections.
    pub interval: Duration,
    /// The maximum number of updates that wait for one ztunnel. A connection with a full queue is closed.
    pub queue: usize,
}

impl Limits {
    /// Istio's limits, apart from `queue`. The queue of Istio's agent holds 100 updates; while it is full, the agent
    /// delays further updates.
    pub const ISTIO: Self = Self {
        hello: Duration::from_secs(5),
        send: Duration::from_secs(5),
        response: Duration::from_secs(5),
        interval: Duration::from_millis(200),
        queue: 1024,
    };
}

/// Why a pod has not been added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No ztunnel of this node is connected, or none has sent its first message.
    #[error("no ztunnel connection within {limit:?}; does the node's ztunnel run, and has it reached istiod?")]
    NoConnection { limit: Duration },
    /// A ztunnel is connected, but has not responded.
    #[error("no response of ztunnel within {limit:?}; its log has the reason")]
    NoResponse { limit: Duration },
    /// ztunnel could not start the pod's proxy. ztunnel tries again by itself until the pod is deleted.
    #[error("got ack error: {0}")]
    Refused(String),
    /// The pod was removed in the meantime, or was added with another netns.
    #[error("the pod was removed or changed before ztunnel acknowledged it; the later change is sent instead")]
    Superseded,
}

/// A change for one ztunnel.
#[derive(Debug)]
pub(super) enum Update {
    Request {
        request: Request<PodNetns>,
        /// Gets the response; closed without one if the connection ends.
        caller: oneshot::Sender<Response>,
    },
    /// The requests that were sent only to a newer connection, which has ended.
    Missed(Vec<Request<PodNetns>>),
}

impl Update {
    /// Whether this is an add for which no caller waits any more: its caller has ended or has sent the request again.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(self, Self::Request { request: Request::Add { .. }, caller } if caller.is_closed())
    }
}

/// The queue of a connection. The connection ends when the queue is dropped.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) updates: mpsc::Sender<Update>,
    pub(super) _removed: oneshot::Sender<Infallible>,
}

type Shared = State<PodNetns, Queue>;

/// The enrolled pods and the connected ztunnels; clones share them.
#[derive(Debug, Clone)]
pub struct Ztunnels {
    state: Arc<Mutex<Shared>>,
    /// Notified when a ztunnel has connected, and when connections are allowed.
    changes: watch::Sender<()>,
    limits: Limits,
    metrics: Metrics,
}

impl Ztunnels {
    /// Creates the state without pods. No ztunnel is accepted before [`fill`](Self::fill) is called.
    pub fn new(limits: Limits, metrics: Metrics) -> Self {
        Self { state: Arc::default(), changes: watch::Sender::new(()), limits, metrics }
    }

    /// Records a pod that is enrolled and whose netns is unknown, so that snapshots keep its proxy.
    pub fn ensure(&self, uid: &Uid) {
        self.lock().ensure(uid);
    }

    /// Records a pod with its netns without waiting for a ztunnel. Call it before [`fill`](Self::fill), and
    /// [`add`](Self::add) afterwards.
    pub fn restore(&self, uid: &Uid, pod: Enrolled<PodNetns>) {
        let _for_the_snapshot = self.lock().add(uid, pod);
    }

    /// Declares that all pods are recorded that were enrolled before the agent started. Only then ztunnels are
    /// accepted, because they drain the proxies of pods that a snapshot does not name.
    pub fn fill(&self) {
        self.lock().fill();
        self.changes.send_replace(());
    }

    /// Records a pod with its netns, and returns once the newest ztunnel has acknowledged it. Waits for a ztunnel if none is
    /// connected, and sends the pod to the next one if a connection ends.
    ///
    /// After an error the pod stays recorded, and later ztunnels get it: the caller tries again or
    /// [`delete`](Self::delete)s it.
    pub async fn add(&self, uid: &Uid, pod: Enrolled<PodNetns>, limit: Duration) -> Result<(), Error> {
        let changes = self.changes.subscribe();
        // The lock is held while the pod is recorded and the request is queued, so that a ztunnel that connects
        // afterwards has the pod in its snapshot.
        let (request, response) = {
            let state = &mut *self.lock();
            let request = state.add(uid, pod);
            let response = self.send_to_newest(state, &request);
            (request, response)
        };
        match timeout(limit, self.acknowledged(request, response, changes)).await {
            Ok(done) => done,
            Err(_) if self.lock().newest().is_none() => Err(Error::NoConnection { limit }),
            Err(_) => Err(Error::NoResponse { limit }),
        }
    }

    /// Waits for the response to a request. If the connection ends without one, sends the request again to the newest
    /// connection.
    async fn acknowledged(
        &self,
        request: Request<PodNetns>,
        mut response: Option<oneshot::Receiver<Response>>,
        mut changes: watch::Receiver<()>,
    ) -> Result<(), Error> {
        loop {
            match response {
                Some(response) => match response.await {
                    Ok(Response::Ack) => return Ok(()),
                    Ok(Response::Nack(error)) => return Err(Error::Refused(error)),
                    // The connection has ended and is no longer the newest.
                    Err(_) => {}
                },
                // `self` owns the sender, so the channel is open.
                None => drop(changes.changed().await),
            }
            changes.mark_unchanged();
            let state = &mut *self.lock();
            if !state.registry().is_current(&request) {
                return Err(Error::Superseded);
            }
            response = self.send_to_newest(state, &request);
        }
    }

    /// Removes a pod. Returns the pod, if its netns was known, once all ztunnels have responded or have been
    /// disconnected. There is no error, because a ztunnel that connects later does not get the pod. The requests are
    /// sent even if the future is dropped.
    pub fn delete(&self, uid: &Uid) -> impl Future<Output = Option<Enrolled<PodNetns>>> + use<> {
        let state = &mut *self.lock();
        let (pod, request) = state.delete(uid);
        let ids: Vec<Id> = state.connections().iter().map(|connection| connection.id).collect();
        let responses: Vec<_> = ids.into_iter().filter_map(|id| self.send(state, id, &request)).collect();
        async move {
            join_all(responses).await;
            pod
        }
    }

    /// Returns the netns of a pod, if it is known.
    pub fn netns(&self, uid: &Uid) -> Option<PodNetns> {
        self.lock().registry().get(uid).map(|pod| pod.netns.clone())
    }

    /// Returns the number of pods, and how many of them have an unknown netns.
    pub fn counts(&self) -> (usize, usize) {
        self.lock().registry().counts()
    }

    /// Returns the number of connected ztunnels.
    pub fn connected(&self) -> usize {
        self.lock().connections().len()
    }

    /// Waits until [`fill`](Self::fill) has been called.
    pub(super) async fn filled(&self) {
        let mut changes = self.changes.subscribe();
        while !self.lock().is_filled() {
            // `self` owns the sender, so the channel is open.
            let _ = changes.changed().await;
        }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Adds a connection and returns its snapshot. The connection is removed when the returned [`Member`] is dropped.
    pub(super) fn join(&self, queue: Queue) -> (Member, Vec<Request<PodNetns>>) {
        let state = &mut *self.lock();
        let Joined { id, snapshot } = state.join(queue);
        self.counted(state);
        self.changes.send_replace(());
        (Member { ztunnels: self.clone(), id }, snapshot)
    }

    /// Queues a request for the newest connection; returns the channel of its response.
    fn send_to_newest(&self, state: &mut Shared, request: &Request<PodNetns>) -> Option<oneshot::Receiver<Response>> {
        loop {
            let newest = state.newest()?.id;
            if let Some(response) = self.send(state, newest, request) {
                return Some(response);
            }
        }
    }

    /// Queues a request for a connection, or removes the connection if its queue is full.
    fn send(&self, state: &mut Shared, id: Id, request: &Request<PodNetns>) -> Option<oneshot::Receiver<Response>> {
        let (caller, response) = oneshot::channel();
        let update = Update::Request { request: request.clone(), caller };
        let queue = state.connections().iter().find(|connection| connection.id == id).map(|found| &found.queue)?;
        if queue.updates.try_send(update).is_ok() {
            return Some(response);
        }
        self.leave(state, id);
        None
    }

    /// Removes a connection, whose task ends because its queue is dropped.
    fn leave(&self, state: &mut Shared, id: Id) {
        let missed = state.leave(id);
        if let Some(newest) = state.newest()
            && !missed.is_empty()
        {
            let id = newest.id;
            if newest.queue.updates.try_send(Update::Missed(missed)).is_err() {
                // That queue is full, too. The next newest connection has missed the same pods and gets them instead.
                return self.leave(state, id);
            }
        }
        self.counted(state);
    }

    fn counted(&self, state: &Shared) {
        self.metrics.set_connected(state.connections().len());
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection of a ztunnel, which is removed from the state when this value is dropped.
#[derive(Debug)]
pub(super) struct Member {
    ztunnels: Ztunnels,
    pub(super) id: Id,
}

impl Drop for Member {
    fn drop(&mut self) {
        let state = &mut *self.ztunnels.lock();
        self.ztunnels.leave(state, self.id);
    }
}
