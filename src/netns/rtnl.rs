//! One rtnetlink conversation in the calling thread's netns: dumps, and changes with their acknowledgement.
//!
//! Blocking, and only on the kernel, which answers at once. Knows nothing of what it carries.

use std::os::fd::{AsRawFd, OwnedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

use super::Error;

/// The largest part of a dump that Linux sends at once.
const ANSWER: usize = 32 * 1024;
/// How often a dump that changes under our eyes is begun anew.
const ATTEMPTS: usize = 5;

pub(super) struct Rtnl {
    socket: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

impl Rtnl {
    pub(super) fn open() -> Result<Self, Error> {
        let kind = (AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute);
        let socket = socket(kind.0, kind.1, kind.2, kind.3)
            .map_err(|source| Error::Rtnetlink { attempt: "open a socket", source })?;
        Ok(Self { socket, buffer: vec![0; ANSWER], sequence: 0 })
    }

    /// All messages that answer `request`, in the kernel's order. A dump that the kernel calls inconsistent is repeated.
    pub(super) fn dump(
        &mut self,
        attempt: &'static str,
        request: &RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, Error> {
        for _ in 0..ATTEMPTS {
            self.send(attempt, request, NLM_F_DUMP)?;
            if let Some(messages) = self.receive_dump(attempt)? {
                return Ok(messages);
            }
        }
        Err(Error::Rtnetlink { attempt, source: Errno::EINTR })
    }

    /// One change and the kernel's verdict on it. `flags`: `NLM_F_CREATE`, `NLM_F_EXCL`.
    pub(super) fn change(
        &mut self,
        attempt: &'static str,
        request: &RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Result<(), Errno>, Error> {
        self.send(attempt, request, NLM_F_ACK | flags)?;
        for message in self.receive(attempt)? {
            if let NetlinkPayload::Error(verdict) = message.payload {
                return Ok(errno(verdict.raw_code()));
            }
        }
        Err(Error::Answer { attempt, detail: "no acknowledgement".to_owned() })
    }

    /// `None`: the dump was interrupted by a change.
    fn receive_dump(&mut self, attempt: &'static str) -> Result<Option<Vec<RouteNetlinkMessage>>, Error> {
        let mut all = Vec::new();
        let mut consistent = true;
        loop {
            for message in self.receive(attempt)? {
                consistent &= message.header.flags & NLM_F_DUMP_INTR == 0;
                let verdict = match message.payload {
                    NetlinkPayload::InnerMessage(inner) => {
                        all.push(inner);
                        continue;
                    }
                    NetlinkPayload::Done(done) => done.code,
                    NetlinkPayload::Error(error) => error.raw_code(),
                    _ => continue,
                };
                errno(verdict).map_err(|source| Error::Rtnetlink { attempt, source })?;
                return Ok(consistent.then_some(all));
            }
        }
    }

    fn send(&mut self, attempt: &'static str, request: &RouteNetlinkMessage, flags: u16) -> Result<(), Error> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(request.clone()));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        send(self.socket.as_raw_fd(), &bytes, MsgFlags::empty())
            .map_err(|source| Error::Rtnetlink { attempt, source })?;
        Ok(())
    }

    /// One datagram's messages, those that answer an earlier request left out.
    fn receive(&mut self, attempt: &'static str) -> Result<Vec<NetlinkMessage<RouteNetlinkMessage>>, Error> {
        let length = recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::empty())
            .map_err(|source| Error::Rtnetlink { attempt, source })?;
        let mut rest = self.buffer.get(..length).unwrap_or_default();
        let mut messages = Vec::new();
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|error| Error::Answer { attempt, detail: error.to_string() })?;
            let next = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(next..).unwrap_or_default();
            if message.header.sequence_number == self.sequence {
                messages.push(message);
            }
        }
        Ok(messages)
    }
}

/// The kernel sends errors negated, and 0 for success.
fn errno(code: i32) -> Result<(), Errno> {
    if code == 0 { Ok(()) } else { Err(Errno::from_raw(-code)) }
}
