//! An rtnetlink client for the calling thread's netns: dumps and changes of addresses, routes and routing rules.
//!
//! For `addresses` and `routes`. The client encodes the messages' framing and does not interpret the objects.

use netlink::{Attrs, Dumped, Error, Kind, Malformed, Protocol, Socket, Writer, flag};
use nix::errno::Errno;
use ruleset::Family;

/// Maximum number of attempts at a consistent dump.
const ATTEMPTS: usize = 5;
/// The sequence number of all requests, of which one is pending at a time.
const SEQUENCE: u32 = 1;

/// A kind of object. Its number is the type of the message that adds one (`RTM_NEW…` in `linux/rtnetlink.h`), which the
/// types to delete and get follow.
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

    fn requested(self) -> u16 {
        self as u16 + 2
    }

    /// Returns the size of the header before the attributes, in bytes.
    fn header(self) -> usize {
        match self {
            Self::Address => 8,
            Self::Route | Self::Rule => 12,
        }
    }
}

/// Returns `AF_INET` or `AF_INET6`; without a family 0, which means all.
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

    /// Returns the values that `read` returns for the objects of a family, in the kernel's order; `read` gets an object's
    /// header and attributes. An inconsistent dump is repeated.
    pub(super) fn dump<T>(
        &mut self,
        request: &'static str,
        object: Object,
        family: Option<Family>,
        read: impl Fn(&[u8]) -> Result<Option<T>, Malformed>,
    ) -> Result<Vec<T>, Error> {
        let bytes = message(request, object.requested(), flag::DUMP, |w| {
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
        Err(Error::Io { request, step: "receiving a consistent dump", cause: Errno::EINTR })
    }

    /// Adds an object that must not exist yet.
    pub(super) fn add(&mut self, request: &'static str, object: Object, body: &[u8]) -> Result<(), Error> {
        self.change(request, object.added(), flag::CREATE | flag::EXCL, body)
    }

    /// Deletes an object that matches.
    pub(super) fn delete(&mut self, request: &'static str, object: Object, body: &[u8]) -> Result<(), Error> {
        self.change(request, object.deleted(), 0, body)
    }

    fn change(&mut self, request: &'static str, kind: u16, flags: u16, body: &[u8]) -> Result<(), Error> {
        let bytes = message(request, kind, flag::ACK | flags, |w| w.raw(body))?;
        self.0.request(request, &bytes, SEQUENCE, |_| Ok(()))
    }
}

fn message(request: &'static str, kind: u16, flags: u16, body: impl FnOnce(&mut Writer)) -> Result<Vec<u8>, Error> {
    let mut w = Writer::default();
    w.message(kind, flag::REQUEST | flags, SEQUENCE, body);
    w.into_bytes().map_err(|cause| Error::Malformed { request, cause })
}

/// Returns the value of the first attribute of this type.
pub(super) fn find(attrs: &[u8], kind: u16) -> Result<Option<&[u8]>, Malformed> {
    for attr in Attrs::new(attrs) {
        let attr = attr?;
        if attr.kind == kind {
            return Ok(Some(attr.value));
        }
    }
    Ok(None)
}
