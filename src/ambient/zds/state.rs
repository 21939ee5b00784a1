//! The enrolled pods and the connected ztunnels, changed together. Pure.
//!
//! A change of the pods and its requests to connections are one step, and so are a new connection and its snapshot:
//! each change is either in a connection's snapshot or in its queue. `N` is a netns, `Q` the queue of a connection.

use std::collections::BTreeSet;
use std::fmt;

use super::message::{Request, Uid};
use super::registry::{Enrolled, Registry};

/// The maximum number of connected ztunnels. A node has two during an upgrade.
pub const CONNECTIONS: usize = 8;

/// Identifies a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(u64);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A connection whose ztunnel has sent its `ZdsHello`.
#[derive(Debug)]
pub struct Connection<Q> {
    pub id: Id,
    pub queue: Q,
    /// The pods that were added while another connection was the newest.
    missed: BTreeSet<Uid>,
}

/// The result of [`State::join`]: the connection's id, and the snapshot to send to it.
#[derive(Debug)]
pub struct Joined<N> {
    pub id: Id,
    pub snapshot: Vec<Request<N>>,
}

#[derive(Debug)]
pub struct State<N, Q> {
    registry: Registry<N>,
    /// Oldest first.
    connections: Vec<Connection<Q>>,
    /// The number of connections so far.
    joined: u64,
    /// Whether all pods are recorded that were enrolled before the agent started.
    filled: bool,
}

impl<N, Q> Default for State<N, Q> {
    fn default() -> Self {
        Self { registry: Registry::default(), connections: Vec::new(), joined: 0, filled: false }
    }
}

impl<N: Clone + PartialEq, Q> State<N, Q> {
    pub fn registry(&self) -> &Registry<N> {
        &self.registry
    }

    /// Records an enrolled pod whose netns is unknown. Connected ztunnels need no request.
    pub fn ensure(&mut self, uid: &Uid) {
        self.registry.ensure(uid);
    }

    /// Allows connections: from now on a snapshot has all enrolled pods.
    pub fn fill(&mut self) {
        self.filled = true;
    }

    pub fn is_filled(&self) -> bool {
        self.filled
    }

    /// Records a pod and returns the request for the newest connection.
    pub fn add(&mut self, uid: &Uid, pod: Enrolled<N>) -> Request<N> {
        if let Some((_newest, others)) = self.connections.split_last_mut() {
            for other in others {
                other.missed.insert(uid.clone());
            }
        }
        self.registry.upsert(uid, pod)
    }

    /// Removes a pod and returns it, if its netns was known, and the request for all connections.
    pub fn delete(&mut self, uid: &Uid) -> (Option<Enrolled<N>>, Request<N>) {
        for connection in &mut self.connections {
            connection.missed.remove(uid);
        }
        (self.registry.take(uid), Request::Del { uid: uid.clone() })
    }

    /// Adds a connection, which is then the newest, and returns its snapshot. The oldest connection is removed if there
    /// are too many; its task ends when its queue is dropped.
    pub fn join(&mut self, queue: Q) -> Joined<N> {
        if self.connections.len() >= CONNECTIONS {
            self.connections.remove(0);
        }
        self.joined += 1;
        let id = Id(self.joined);
        self.connections.push(Connection { id, queue, missed: BTreeSet::new() });
        Joined { id, snapshot: self.registry.snapshot() }
    }

    /// Removes a connection. Returns the requests for the connection that is now the newest: they add the pods that were sent only
    /// to newer connections.
    pub fn leave(&mut self, id: Id) -> Vec<Request<N>> {
        self.connections.retain(|connection| connection.id != id);
        let missed = self.connections.last_mut().map(|newest| std::mem::take(&mut newest.missed));
        missed.into_iter().flatten().filter_map(|uid| self.registry.request(&uid)).collect()
    }

    /// Returns the connection that serves new pods: the newest, because of two ztunnels the older one is about to end.
    pub fn newest(&self) -> Option<&Connection<Q>> {
        self.connections.last()
    }

    /// Returns all connections, oldest first.
    pub fn connections(&self) -> &[Connection<Q>] {
        &self.connections
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ambient::zds::message::Workload;

    fn state() -> State<u32, &'static str> {
        State::default()
    }

    fn uid(text: &str) -> Uid {
        Uid::new(text).unwrap()
    }

    fn queues(state: &State<u32, &'static str>) -> Vec<&'static str> {
        state.connections().iter().map(|connection| connection.queue).collect()
    }

    #[test]
    fn the_newest_leads_and_the_one_before_it_follows() {
        let mut state = state();
        assert!(state.newest().is_none());
        let old = state.join("old").id;
        let new = state.join("new").id;
        assert_eq!(state.newest().map(|newest| newest.queue), Some("new"));
        state.leave(new);
        assert_eq!(state.newest().map(|newest| newest.queue), Some("old"));
        let newer = state.join("newer").id;
        assert!(old < newer && new != newer);
        state.leave(old);
        state.leave(old);
        assert_eq!(queues(&state), ["newer"]);
    }

    #[test]
    fn the_next_to_lead_gets_what_it_has_missed() {
        let mut state = state();
        state.join("old");
        let pod = |netns| {
            let workload = Workload::new("shop", "web-0", "web").unwrap();
            Enrolled { workload, netns }
        };
        state.add(&uid("before"), pod(1));
        let new = state.join("new").id;
        let added = state.add(&uid("during"), pod(2));
        state.add(&uid("deleted"), pod(3));
        state.delete(&uid("deleted"));
        assert_eq!(state.leave(new), [added]);
        let new = state.join("new").id;
        assert_eq!(state.leave(new), [], "it got them");
    }

    #[test]
    fn the_oldest_of_too_many_is_removed() {
        let mut state = state();
        state.join("first");
        (1..CONNECTIONS).for_each(|_| drop(state.join("next")));
        assert_eq!(queues(&state)[0], "first");
        state.join("last");
        assert_eq!((queues(&state).len(), queues(&state)[0]), (CONNECTIONS, "next"));
        assert_eq!(state.newest().map(|newest| newest.queue), Some("last"));
    }
}
