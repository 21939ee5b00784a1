//! A netlink socket: one dump or one acknowledged transaction at a time.

use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};

use super::{Error, Kind, Malformed, Message, Messages, Refusal, flag};

/// How long the kernel may take for an answer, in seconds. It answers while the request is being sent; only a lock
/// that someone else holds delays it.
const PATIENCE: i64 = 10;
/// The largest datagram that is read, in bytes; the kernel makes none larger than 32 KiB.
const DATAGRAM: usize = 32 * 1024;
/// The longest dump that is read and the longest batch that is sent, in bytes.
const LIMIT: usize = 64 * 1024 * 1024;
/// What a socket can send by default (`net.core.wmem_default`), less the kernel's own part.
const SENDS: usize = 160 * 1024;

/// The kernel subsystem at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `NETLINK_ROUTE`
    Route,
    /// `NETLINK_NETFILTER`
    Netfilter,
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Self::Route => "rtnetlink",
            Self::Netfilter => "netfilter netlink",
        }
    }

    fn number(self) -> isize {
        match self {
            Self::Route => netlink_sys::protocols::NETLINK_ROUTE,
            Self::Netfilter => netlink_sys::protocols::NETLINK_NETFILTER,
        }
    }
}

/// How a dump ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dumped {
    /// All of it belongs together.
    Whole,
    /// What was dumped changed meanwhile: ask again.
    Interrupted,
}

/// A socket to the kernel, in the netns that the opening thread was in.
pub struct Socket {
    socket: netlink_sys::Socket,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens it (close-on-exec, with extended acknowledgements and a time limit for answers).
    pub fn open(protocol: Protocol) -> Result<Self, Error> {
        let failed = |source| Error::Open { protocol: protocol.name(), source };
        let socket = netlink_sys::Socket::new(protocol.number()).map_err(|e| failed(errno(&e)))?;
        // Kernels before 4.12 know neither: errors then lack their words, and repeat the message.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::seconds(PATIENCE)).map_err(failed)?;
        Ok(Self { socket, buffer: Vec::with_capacity(DATAGRAM) })
    }

    /// Sends a dump request and hands each message of the answer to `each`. `request` names it in errors.
    pub fn dump(
        &mut self,
        request: &'static str,
        bytes: &[u8],
        mut each: impl FnMut(&Message<'_>) -> Result<(), Malformed>,
    ) -> Result<Dumped, Error> {
        self.send(request, bytes)?;
        let mut dumped = Dumped::Whole;
        let mut total = 0;
        loop {
            total += self.receive(request)?;
            if total > LIMIT {
                return Err(Error::TooLong { request, limit: LIMIT });
            }
            for message in Messages::new(&self.buffer) {
                let message = message.map_err(|source| Error::Malformed { request, source })?;
                if message.flags & flag::DUMP_INTERRUPTED != 0 {
                    dumped = Dumped::Interrupted;
                }
                match message.kind {
                    Kind::Done => return Ok(dumped),
                    Kind::Refused(Refusal { errno: Errno::EINTR, .. }) => return Ok(Dumped::Interrupted),
                    Kind::Refused(refusal) => return Err(Error::Refused { request, refusal }),
                    Kind::Ack | Kind::Other(_) => {
                        each(&message).map_err(|source| Error::Malformed { request, source })?;
                    }
                }
            }
        }
    }

    /// Sends messages of which the one numbered `last` asks for an acknowledgement, and waits for it or for the first
    /// refusal; hands what else comes to `each`.
    pub fn ask(
        &mut self,
        request: &'static str,
        bytes: &[u8],
        last: u32,
        mut each: impl FnMut(&Message<'_>) -> Result<(), Malformed>,
    ) -> Result<(), Error> {
        self.send(request, bytes)?;
        loop {
            self.receive(request)?;
            for message in Messages::new(&self.buffer) {
                let message = message.map_err(|source| Error::Malformed { request, source })?;
                match message.kind {
                    Kind::Refused(refusal) => return Err(Error::Refused { request, refusal }),
                    Kind::Ack if message.seq == last => return Ok(()),
                    Kind::Ack | Kind::Done => (),
                    Kind::Other(_) => each(&message).map_err(|source| Error::Malformed { request, source })?,
                }
            }
        }
    }

    fn send(&self, request: &'static str, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() > LIMIT {
            return Err(Error::TooLong { request, limit: LIMIT });
        }
        if bytes.len() > SENDS {
            self.widen(bytes.len());
        }
        let sent = self.socket.send(bytes, 0).map_err(|e| Error::Io { request, step: "sending", source: errno(&e) })?;
        if sent == bytes.len() {
            return Ok(());
        }
        Err(Error::Io { request, step: "sending", source: Errno::EMSGSIZE })
    }

    /// Makes room for a long batch. Where the kernel declines, sending says so.
    fn widen(&self, bytes: usize) {
        let size = bytes + bytes / 4;
        if setsockopt(&self.socket, sockopt::SndBufForce, &size).is_err() {
            let _ = setsockopt(&self.socket, sockopt::SndBuf, &size);
        }
    }

    fn receive(&mut self, request: &'static str) -> Result<usize, Error> {
        self.buffer.clear();
        loop {
            let received = self.socket.recv(&mut self.buffer, nix::libc::MSG_TRUNC);
            match received.map_err(|e| errno(&e)) {
                Ok(length) if length > self.buffer.len() => {
                    return Err(Error::TooLong { request, limit: DATAGRAM });
                }
                Ok(length) => return Ok(length),
                // After an overrun what fitted is still there, the first refusal included.
                Err(Errno::EINTR | Errno::ENOBUFS) => (),
                Err(source) => return Err(Error::Io { request, step: "receiving", source }),
            }
        }
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Socket").field(&self.socket.as_raw_fd()).finish()
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO))
}
