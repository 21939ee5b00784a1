//! A model of a node: pods are enrolled and removed while ztunnels connect, respond late, refuse, and disconnect.
//!
//! [`Ztunnel`] is the model of a ztunnel, which fails the test if the real one would exit. [`Node`] has the connections and callers
//! as the server has them. [`Node::check`] asserts the invariants.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::ambient::zds::message::{Response, Workload, wire};
use crate::ambient::zds::session::{Next, Session};

/// The netns of each proxy, by the UID of its pod.
type Proxies = BTreeMap<String, u8>;

#[derive(Debug, Clone)]
enum Event {
    Add(u8, u8),
    Delete(u8),
    /// A new ztunnel connects.
    Connects,
    /// A connection is closed, and what is in its queue is lost. Its ztunnel ends, too, or connects again if the flag
    /// is false.
    Closes(Index, bool),
    /// A connection takes its next step.
    Steps(Index),
    /// A ztunnel refuses the next request.
    Refuses(Index),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..6_u8, 0..3_u8).prop_map(|(pod, netns)| Event::Add(pod, netns)),
        2 => (0..6_u8).prop_map(Event::Delete),
        1 => Just(Event::Connects),
        1 => (any::<Index>(), any::<bool>()).prop_map(|(at, ends)| Event::Closes(at, ends)),
        12 => any::<Index>().prop_map(Event::Steps),
        1 => any::<Index>().prop_map(Event::Refuses),
    ]
}

#[derive(Debug, Default)]
struct Ztunnel {
    proxies: Proxies,
    /// The pods that the snapshot has named so far; none once the snapshot has ended.
    named: Option<BTreeSet<String>>,
    refuses: bool,
}

impl Ztunnel {
    fn connects(&mut self) {
        self.named = Some(BTreeSet::new());
    }

    fn respond(&mut self, request: &Request<u8>) -> Response {
        let uid = request.uid().map_or_else(String::new, ToString::to_string);
        match request {
            // The proxy is recorded even if the response is a refusal: ztunnel retries until it can start the proxy.
            Request::Add { netns, .. } => {
                self.proxies.insert(uid.clone(), *netns);
                self.named.as_mut().map(|named| named.insert(uid));
            }
            Request::Keep { .. } => {
                assert!(self.named.as_mut().expect("ztunnel exits at a Keep after the snapshot").insert(uid));
            }
            Request::Del { .. } => match &mut self.named {
                Some(named) => drop(named.remove(&uid)),
                None => drop(self.proxies.remove(&uid)),
            },
            Request::SnapshotSent => {
                let named = self.named.take().expect("ztunnel exits at a second SnapshotSent");
                self.proxies.retain(|uid, _| named.contains(uid));
            }
        }
        if std::mem::take(&mut self.refuses) { Response::Nack("refused".into()) } else { Response::Ack }
    }
}

/// A request that is queued or sent, with the number of the caller that waits for the response.
type Update = (Request<u8>, Option<usize>);

#[derive(Debug)]
struct Link {
    id: Id,
    session: Session<u8, Option<usize>>,
    queue: VecDeque<Update>,
    ztunnel: Ztunnel,
    /// The update, or request from the snapshot, whose response has not been read, with that response.
    pending: Option<(Update, Response)>,
}

#[derive(Debug, Default)]
struct Node {
    state: State<u8, ()>,
    links: Vec<Link>,
    /// The adds without a response, by the numbers of their callers. `waiting` lists the callers whose add waits for a
    /// connection.
    adds: BTreeMap<usize, Request<u8>>,
    waiting: Vec<usize>,
    callers: usize,
}

fn packet(response: &Response) -> Vec<u8> {
    let error = match response {
        Response::Ack => String::new(),
        Response::Nack(error) => error.clone(),
    };
    let payload = Some(wire::workload_response::Payload::Ack(wire::Ack { error }));
    prost::Message::encode_to_vec(&wire::WorkloadResponse { payload })
}

impl Node {
    fn link(&mut self, id: Id) -> &mut Link {
        self.links.iter_mut().find(|link| link.id == id).expect("each connection of the state is there")
    }

    fn applies(&mut self, event: &Event) {
        let at = |index: &Index, node: &Self| (!node.links.is_empty()).then(|| index.index(node.links.len()));
        match event {
            Event::Add(pod, netns) => self.adds(&pod.to_string(), *netns),
            Event::Delete(pod) => self.deletes(&pod.to_string()),
            Event::Connects => self.connects(Ztunnel::default()),
            Event::Closes(index, ends) => {
                let Some(at) = at(index, self) else { return };
                let ztunnel = self.closes(at);
                if !ends {
                    self.connects(ztunnel);
                }
            }
            Event::Steps(index) => drop(at(index, self).map(|at| self.steps(at))),
            Event::Refuses(index) => drop(at(index, self).map(|at| self.links[at].ztunnel.refuses = true)),
        }
    }

    fn adds(&mut self, uid: &str, netns: u8) {
        let workload = Workload::new("shop", "web-0", "web").unwrap();
        let request = self.state.add(&Uid::new(uid).unwrap(), Enrolled { workload, netns });
        self.callers += 1;
        self.adds.insert(self.callers, request);
        self.waiting.push(self.callers);
        self.send_waiting();
    }

    /// Sends the adds that wait for a connection to the newest connection.
    fn send_waiting(&mut self) {
        let Some(newest) = self.state.newest().map(|newest| newest.id) else { return };
        for caller in std::mem::take(&mut self.waiting) {
            let request = self.adds[&caller].clone();
            if self.state.registry().is_current(&request) {
                self.link(newest).queue.push_back((request, Some(caller)));
            } else {
                self.adds.remove(&caller);
            }
        }
    }

    fn deletes(&mut self, uid: &str) {
        let (_, request) = self.state.delete(&Uid::new(uid).unwrap());
        self.links.iter_mut().for_each(|link| link.queue.push_back((request.clone(), None)));
    }

    fn connects(&mut self, mut ztunnel: Ztunnel) {
        if self.links.len() == CONNECTIONS {
            self.closes(0);
        }
        ztunnel.connects();
        let Joined { id, snapshot } = self.state.join(());
        let (session, queue) = (Session::new(snapshot), VecDeque::new());
        self.links.push(Link { id, session, queue, ztunnel, pending: None });
        self.send_waiting();
    }

    /// Closes a connection: adds that its ztunnel has not acknowledged go to the connection that is the newest then.
    fn closes(&mut self, at: usize) -> Ztunnel {
        let link = self.links.remove(at);
        let missed = self.state.leave(link.id);
        if let Some(newest) = self.state.newest().map(|newest| newest.id) {
            self.link(newest).queue.extend(missed.into_iter().map(|request| (request, None)));
        }
        let outstanding: Vec<usize> = self.adds.keys().copied().filter(|caller| !self.is_queued(*caller)).collect();
        self.waiting = outstanding;
        self.send_waiting();
        link.ztunnel
    }

    fn is_queued(&self, caller: usize) -> bool {
        let has = |link: &Link| {
            let sent = link.pending.iter().map(|(update, _)| update);
            sent.chain(&link.queue).any(|(_, queued)| *queued == Some(caller))
        };
        self.links.iter().any(has)
    }

    /// Runs one step of the server's loop; returns whether there was anything to do.
    fn steps(&mut self, at: usize) -> bool {
        let link = &mut self.links[at];
        match link.session.advance() {
            Next::Send(request) => {
                let response = link.ztunnel.respond(&request);
                link.pending = Some(((request, None), response));
            }
            Next::Receive => {
                let ((request, _), response) = link.pending.take().expect("a request is outstanding");
                let responded = link.session.received(&packet(&response)).expect("an acknowledgement");
                assert_eq!((responded.request.kind, &responded.response), (request.name(), &response));
                if let Some(caller) = responded.caller.flatten() {
                    assert_eq!(
                        self.adds.remove(&caller),
                        Some(request),
                        "the response is that of the caller's request"
                    );
                }
            }
            Next::Update => {
                let Some((request, caller)) = link.queue.pop_front() else { return false };
                link.session.sent(&request, caller);
                let response = link.ztunnel.respond(&request);
                link.pending = Some(((request, caller), response));
            }
        }
        true
    }

    /// Lets every connection finish, and compares the ztunnels with the registry.
    fn check(&mut self) {
        for at in 0..self.links.len() {
            while self.steps(at) {}
        }
        let Some(newest) = self.links.last() else { return };
        assert!(self.adds.is_empty(), "each caller has its response: {:?}", self.adds);
        let netns = |uid: &str| Some(self.state.registry().get(&Uid::new(uid).unwrap())?.netns);
        let enrolled: Proxies =
            (0..6_u8).map(|pod| pod.to_string()).filter_map(|uid| Some((uid.clone(), netns(&uid)?))).collect();
        assert_eq!(newest.ztunnel.proxies, enrolled, "the newest ztunnel serves the enrolled pods");
        for link in &self.links {
            let served = link.ztunnel.proxies.keys().all(|uid| enrolled.contains_key(uid));
            assert!(served, "{:?} serves a pod that left: {:?}, {enrolled:?}", link.id, link.ztunnel.proxies);
        }
    }
}

proptest! {
    #[test]
    fn the_newest_ztunnel_serves_exactly_the_enrolled_pods(events in prop::collection::vec(event(), 0..120)) {
        let mut node = Node::default();
        for event in &events {
            node.applies(event);
        }
        node.check();
        // A ztunnel that connects last gets everything in its snapshot.
        node.connects(Ztunnel::default());
        node.check();
    }
}
