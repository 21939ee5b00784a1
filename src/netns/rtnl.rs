//! rtnetlink in the calling thread's netns: what is asked about addresses, routes and routing rules, and changed.
//!
//! `addresses` and `routes` ask through it. It knows how a message of each is framed, not what one is for.

use nix::errno::Errno;

use crate::netlink::{Attrs, Dumped, Error, Kind, Malformed, Protocol, Socket, Writer, flag};
use crate::rules::Family;

/// How often a dump that changes under our eyes is begun anew.
const ATTEMPTS: usize = 5;
/// One request is under way at a time.
const SEQUENCE: u32 = 1;

/// What rtnetlink keeps, by the first of its message types (`RTM_NEW…` of `linux/rtnetlink.h`): there are four of each,
/// for new, deleted, asked for and changed ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Object {
    /// `RTM_NEWADDR`; `struct ifaddrmsg`
    Address = 20,
    /// `RTM_NEWROUTE`; `struct rtmsg`
    Route = 24,
    /// `RTM_NEWRULE`; `struct fib_rule_hdr`
    Rule = 32,
}

impl Object {
    fn added(self) -> u16 {
        self as u16
    }

    fn deleted(self) -> u16 {
        self as u16 + 1
    }

    fn asked(self) -> u16 {
        self as u16 + 2
    }

    /// Bytes before the attributes.
    fn header(self) -> usize {
        match self {
            Self::Address => 8,
            Self::Route | Self::Rule => 12,
        }
    }
}

/// The number of a family: `AF_INET`, `AF_INET6`; 0 asks for all.
pub(super) fn number(family: Option<Family>) -> u8 {
    match family {
        None => 0,
        Some(Family::V4) => 2,
        Some(Family::V6) => 10,
    }
}

pub(super) struct Rtnl(Socket);

impl Rtnl {
    pub(super) fn open() -> Result<Self, Error> {
        Socket::open(Protocol::Route).map(Self)
    }

    /// All objects of a family that `read` makes something of, in the kernel's order; it is given header and attributes.
    /// A dump that the kernel calls inconsistent is repeated.
    pub(super) fn dump<T>(
        &mut self,
        request: &'static str,
        object: Object,
        family: Option<Family>,
        read: impl Fn(&[u8]) -> Result<Option<T>, Malformed>,
    ) -> Result<Vec<T>, Error> {
        let bytes = message(request, object.asked(), flag::DUMP, |w| {
            let mut header = vec![0; object.header()];
            if let Some(first) = header.first_mut() {
                *first = number(family);
            }
            w.raw(&header);
        })?;
        for _ in 0..ATTEMPTS {
            let mut all = Vec::new();
            let dumped = self.0.dump(request, &bytes, |message| {
                if message.kind == Kind::Other(object.added()) {
                    all.extend(read(message.body)?);
                }
                Ok(())
            })?;
            if dumped == Dumped::Whole {
                return Ok(all);
            }
        }
        Err(Error::Io { request, step: "receiving a dump that holds still", cause: Errno::EINTR })
    }

    /// Adds what must not be there yet.
    pub(super) fn add(&mut self, request: &'static str, object: Object, body: &[u8]) -> Result<(), Error> {
        self.change(request, object.added(), flag::CREATE | flag::EXCL, body)
    }

    /// Removes what is like this.
    pub(super) fn delete(&mut self, request: &'static str, object: Object, body: &[u8]) -> Result<(), Error> {
        self.change(request, object.deleted(), 0, body)
    }

    fn change(&mut self, request: &'static str, kind: u16, flags: u16, body: &[u8]) -> Result<(), Error> {
        let bytes = message(request, kind, flag::ACK | flags, |w| w.raw(body))?;
        self.0.ask(request, &bytes, SEQUENCE, |_| Ok(()))
    }
}

fn message(request: &'static str, kind: u16, flags: u16, body: impl FnOnce(&mut Writer)) -> Result<Vec<u8>, Error> {
    let mut w = Writer::default();
    w.message(kind, flag::REQUEST | flags, SEQUENCE, body);
    w.into_bytes().map_err(|cause| Error::Malformed { request, cause })
}

/// The value of the first attribute of this type.
pub(super) fn find(attrs: &[u8], kind: u16) -> Result<Option<&[u8]>, Malformed> {
    for attr in Attrs::new(attrs) {
        let attr = attr?;
        if attr.kind == kind {
            return Ok(Some(attr.value));
        }
    }
    Ok(None)
}
