//! rtnetlink in the calling thread's netns: the packets of `netlink-packet-route` over our own socket.
//!
//! `addresses` and `routes` ask through it. It knows nothing of what it carries.

use netlink_packet_core::{NetlinkDeserializable as _, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use nix::errno::Errno;

use crate::netlink::{Dumped, Error, Kind, Malformed, Protocol, Socket, flag};

/// How often a dump that changes under our eyes is begun anew.
const ATTEMPTS: usize = 5;
/// One request is under way at a time.
const SEQUENCE: u32 = 1;

pub(super) struct Rtnl(Socket);

impl Rtnl {
    pub(super) fn open() -> Result<Self, Error> {
        Socket::open(Protocol::Route).map(Self)
    }

    /// All messages that answer `message`, in the kernel's order. A dump that the kernel calls inconsistent is repeated.
    pub(super) fn dump(
        &mut self,
        request: &'static str,
        message: RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, Error> {
        let bytes = encode(message, flag::DUMP);
        for _ in 0..ATTEMPTS {
            let mut all = Vec::new();
            let dumped = self.0.dump(request, &bytes, |message| {
                if let Kind::Other(kind) = message.kind {
                    all.push(decode(kind, message.body)?);
                }
                Ok(())
            })?;
            if dumped == Dumped::Whole {
                return Ok(all);
            }
        }
        Err(Error::Io { request, step: "receiving a dump that holds still", source: Errno::EINTR })
    }

    /// One change. `flags`: [`flag::CREATE`], [`flag::EXCL`].
    pub(super) fn change(
        &mut self,
        request: &'static str,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<(), Error> {
        self.0.ask(request, &encode(message, flag::ACK | flags), SEQUENCE, |_| Ok(()))
    }
}

fn encode(message: RouteNetlinkMessage, flags: u16) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = flag::REQUEST | flags;
    header.sequence_number = SEQUENCE;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

fn decode(kind: u16, body: &[u8]) -> Result<RouteNetlinkMessage, Malformed> {
    let mut header = NetlinkHeader::default();
    header.message_type = kind;
    RouteNetlinkMessage::deserialize(&header, body).map_err(|_| Malformed("a message that rtnetlink does not send"))
}
