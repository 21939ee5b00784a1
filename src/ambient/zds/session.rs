//! The protocol of one connection after its hello: which request the agent sends next, and to which request a response
//! belongs. Pure.
//!
//! At most one request is outstanding at any time, so that a response needs no number. `N` is a netns, `C` identifies
//! the caller of an update.

use std::collections::VecDeque;

use super::message::{self, Request, Response};

/// The state of a connection. It starts with a snapshot and continues with updates.
#[derive(Debug)]
pub struct Session<N, C> {
    /// The requests that have not been sent and for which no caller waits, in their order: at first the snapshot.
    unsent: VecDeque<Request<N>>,
    outstanding: Option<Outstanding<C>>,
}

/// The request that ztunnel has not responded to yet.
#[derive(Debug)]
struct Outstanding<C> {
    request: Name,
    /// `None` for a request from the snapshot or from [`Session::append`].
    caller: Option<C>,
}

/// Identifies a request that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The name of the request's field.
    pub kind: &'static str,
    /// The pod's UID; empty for the end of the snapshot.
    pub uid: String,
}

/// The next operation of the connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<N> {
    /// Send this request, for which no caller waits; then read the response.
    Send(Request<N>),
    /// Read the response to the last request.
    Receive,
    /// Take an update from the connection's queue. ztunnel sends no packet meanwhile.
    Update,
}

/// The response to a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Responded<C> {
    pub request: Name,
    pub caller: Option<C>,
    pub response: Response,
}

/// How ztunnel broke the protocol; the connection is closed, because later responses could not be attributed to requests.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("ztunnel sent a response, but no request was outstanding")]
    Unrequested,
    #[error(transparent)]
    Message(#[from] message::Error),
}

impl<N, C> Session<N, C> {
    /// Starts with the requests of a snapshot, the last of which is [`Request::SnapshotSent`].
    pub fn new(snapshot: Vec<Request<N>>) -> Self {
        Self { unsent: snapshot.into(), outstanding: None }
    }

    /// Returns the next operation. The caller must send a request in it.
    pub fn advance(&mut self) -> Next<N> {
        if self.outstanding.is_some() {
            return Next::Receive;
        }
        match self.unsent.pop_front() {
            Some(request) => {
                self.outstanding = Some(Outstanding { request: Name::of(&request), caller: None });
                Next::Send(request)
            }
            None => Next::Update,
        }
    }

    /// Adds requests for which no caller waits. For use after [`Next::Update`].
    pub fn append(&mut self, requests: Vec<Request<N>>) {
        self.unsent.extend(requests);
    }

    /// Records that an update was sent. For use after [`Next::Update`].
    pub fn sent(&mut self, update: &Request<N>, caller: C) {
        debug_assert!(self.outstanding.is_none() && self.unsent.is_empty(), "{:?}", Name::of(update));
        self.outstanding = Some(Outstanding { request: Name::of(update), caller: Some(caller) });
    }

    /// Reads a packet and attributes it to the outstanding request.
    pub fn received(&mut self, packet: &[u8]) -> Result<Responded<C>, Violation> {
        let Outstanding { request, caller } = self.outstanding.take().ok_or(Violation::Unrequested)?;
        let response = Response::decode(packet)?;
        Ok(Responded { request, caller, response })
    }
}

impl Name {
    fn of<N>(request: &Request<N>) -> Self {
        Self { kind: request.name(), uid: request.uid().map_or_else(String::new, ToString::to_string) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ambient::zds::message::Uid;

    const ACK: [u8; 2] = [0x0a, 0];
    const NACK: [u8; 6] = [0x0a, 4, 0x0a, 2, b'n', b'o'];

    fn keep(uid: &str) -> Request<()> {
        Request::Keep { uid: Uid::new(uid).unwrap() }
    }

    fn responded<C>(kind: &'static str, uid: &str, caller: Option<C>, response: Response) -> Responded<C> {
        Responded { request: Name { kind, uid: uid.into() }, caller, response }
    }

    #[test]
    fn a_snapshot_is_sent_one_by_one_and_updates_follow() {
        let mut session = Session::new(vec![keep("u1"), Request::SnapshotSent]);
        assert_eq!(session.advance(), Next::Send(keep("u1")));
        assert_eq!([session.advance(), session.advance()], [Next::Receive, Next::Receive]);
        // An error of one pod does not end the snapshot.
        let refused = Response::Nack("no".into());
        assert_eq!(session.received(&NACK), Ok(responded("keep", "u1", None, refused.clone())));
        assert_eq!(session.advance(), Next::Send(Request::SnapshotSent));
        assert_eq!(session.received(&ACK), Ok(responded("snapshot_sent", "", None, Response::Ack)));
        assert_eq!(session.advance(), Next::Update);
        session.sent(&Request::Del { uid: Uid::new("u2").unwrap() }, 7);
        assert_eq!(session.advance(), Next::Receive);
        assert_eq!(session.received(&NACK), Ok(responded("del", "u2", Some(7), refused)));
        assert_eq!(session.advance(), Next::Update);
        session.append(vec![keep("u3"), keep("u4")]);
        for uid in ["u3", "u4"] {
            assert_eq!(session.advance(), Next::Send(keep(uid)));
            assert_eq!(session.received(&ACK), Ok(responded("keep", uid, None, Response::Ack)));
        }
        assert_eq!(session.advance(), Next::Update);
    }

    #[test]
    fn a_response_without_a_request_is_a_violation() {
        let mut session: Session<(), u8> = Session::new(vec![Request::SnapshotSent]);
        assert_eq!(session.received(&ACK), Err(Violation::Unrequested));
        assert_eq!(session.advance(), Next::Send(Request::SnapshotSent));
        session.received(&ACK).unwrap();
        assert_eq!(session.received(&ACK), Err(Violation::Unrequested));
        assert_eq!(session.advance(), Next::Update);
        assert_eq!(session.received(&NACK), Err(Violation::Unrequested));
    }

    #[test]
    fn a_response_that_cannot_be_read_is_a_violation() {
        let mut session: Session<(), u8> = Session::new(vec![Request::SnapshotSent]);
        session.advance();
        assert_eq!(session.received(&[]), Err(Violation::Message(message::Error::NoAck)));
    }
}
