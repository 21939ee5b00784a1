//! A netlink socket for one dump or one acknowledged transaction at a time.

use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};

use super::{Error, Kind, Malformed, Message, Messages, Refusal, flag};

/// Time limit of a response, in seconds. The kernel responds while the request is being sent; only a lock that another
/// process holds delays the response.
const TIMEOUT: i64 = 10;
/// Buffer size for a datagram, in bytes; the kernel sends at most 32 KiB.
const MAX_DATAGRAM: usize = 32 * 1024;
/// Size limit of a dump and of a batch, in bytes.
const MAX_SIZE: usize = 64 * 1024 * 1024;
/// The default size of a socket's send buffer (`net.core.wmem_default`) less the kernel's overhead, in bytes.
const DEFAULT_SEND_BUFFER: usize = 160 * 1024;

/// A netlink protocol, which selects a kernel subsystem.
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

/// Whether a dump is consistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Dumped {
    /// The dump is consistent.
    Whole,
    /// The dumped objects changed during the dump; request it again.
    Interrupted,
}

/// A socket in the netns of the thread that opened it.
pub struct Socket {
    socket: netlink_sys::Socket,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket (close-on-exec) with extended acknowledgements and a time limit for responses.
    pub fn open(protocol: Protocol) -> Result<Self, Error> {
        let failed = |cause| Error::Open { protocol: protocol.name(), cause };
        let socket = netlink_sys::Socket::new(protocol.number()).map_err(|e| failed(errno(&e)))?;
        // Kernels before 4.12 support neither option: their refusals have no message, and repeat the request.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::seconds(TIMEOUT)).map_err(failed)?;
        Ok(Self { socket, buffer: Vec::with_capacity(MAX_DATAGRAM) })
    }

    /// Sends a dump request and passes each message of the response to `each`. Errors name the `request`.
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
            if total > MAX_SIZE {
                return Err(Error::TooLong { request, limit: MAX_SIZE });
            }
            for message in Messages::new(&self.buffer) {
                let message = message.map_err(|cause| Error::Malformed { request, cause })?;
                if message.flags & flag::DUMP_INTERRUPTED != 0 {
                    dumped = Dumped::Interrupted;
                }
                match message.kind {
                    Kind::Done => return Ok(dumped),
                    Kind::Refused(Refusal { errno: Errno::EINTR, .. }) => return Ok(Dumped::Interrupted),
                    Kind::Refused(refusal) => return Err(Error::Refused { request, refusal }),
                    Kind::Ack | Kind::Other(_) => {
                        each(&message).map_err(|cause| Error::Malformed { request, cause })?;
                    }
                }
            }
        }
    }

    /// Sends messages, waits for the acknowledgement of the message numbered `last` or for the first refusal, and
    /// passes all other received messages to `each`.
    pub fn request(
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
                let message = message.map_err(|cause| Error::Malformed { request, cause })?;
                match message.kind {
                    Kind::Refused(refusal) => return Err(Error::Refused { request, refusal }),
                    Kind::Ack if message.seq == last => return Ok(()),
                    Kind::Ack | Kind::Done => (),
                    Kind::Other(_) => each(&message).map_err(|cause| Error::Malformed { request, cause })?,
                }
            }
        }
    }

    fn send(&self, request: &'static str, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() > MAX_SIZE {
            return Err(Error::TooLong { request, limit: MAX_SIZE });
        }
        if bytes.len() > DEFAULT_SEND_BUFFER {
            self.enlarge_send_buffer(bytes.len());
        }
        let sent = self.socket.send(bytes, 0).map_err(|e| Error::Io { request, step: "sending", cause: errno(&e) })?;
        if sent == bytes.len() {
            return Ok(());
        }
        Err(Error::Io { request, step: "sending", cause: Errno::EMSGSIZE })
    }

    /// Enlarges the send buffer for a long batch. If the kernel declines, sending fails.
    fn enlarge_send_buffer(&self, bytes: usize) {
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
                    return Err(Error::TooLong { request, limit: MAX_DATAGRAM });
                }
                Ok(length) => return Ok(length),
                // After an overrun the messages that fitted are still readable, including the first refusal.
                Err(Errno::EINTR | Errno::ENOBUFS) => (),
                Err(cause) => return Err(Error::Io { request, step: "receiving", cause }),
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
