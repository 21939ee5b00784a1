//! Netlink sockets, messages, attributes, dumps and acknowledgements.
//!
//! `netfilter` uses this crate for nf_tables, `podnet` for rtnetlink. Received bytes are bounds-checked and never trusted;
//! callers interpret the messages. A socket stays in the netns in which it was opened.

mod attr;
mod message;
mod socket;

pub use attr::{Attr, Attrs, nested};
pub use message::{Kind, Message, Messages, Refusal, Writer, flag};
pub use socket::{Dumped, Protocol, Socket};

use contract::diagnostics::Documented;

/// Bytes that violate the netlink format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// Whether a retry may succeed: the kernel was busy, interrupted, or short of memory or descriptors.
fn is_temporary(errno: nix::errno::Errno) -> bool {
    use nix::errno::Errno;
    matches!(
        errno,
        Errno::EAGAIN | Errno::EBUSY | Errno::EINTR | Errno::ENOBUFS | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE
    )
}

/// A failed exchange with the kernel.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel lacks this protocol, or the process lacks a privilege or a file descriptor.
    #[error("cannot open a {protocol} socket: {cause}")]
    Open { protocol: &'static str, cause: nix::errno::Errno },
    /// The request was not sent, or no response was received.
    #[error("{request}: {step}: {cause}")]
    Io {
        request: &'static str,
        /// `sending` or `receiving`
        step: &'static str,
        /// `EAGAIN` means that the time limit passed.
        cause: nix::errno::Errno,
    },
    #[error("{request}: {refusal}")]
    Refused { request: &'static str, refusal: Refusal },
    #[error("{request}: malformed netlink message: {cause}")]
    Malformed { request: &'static str, cause: Malformed },
    /// The request or its response exceeds the size limit.
    #[error("{request}: the request or its response has more than {limit} bytes")]
    TooLong {
        request: &'static str,
        /// The limit in bytes.
        limit: usize,
    },
}

impl Documented for Error {
    const ENTRY: &'static str = "netlink-error";
}

impl Error {
    /// Whether a retry may succeed.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Open { cause, .. } | Self::Io { cause, .. } => is_temporary(*cause),
            Self::Refused { refusal, .. } => refusal.is_temporary(),
            Self::Malformed { .. } | Self::TooLong { .. } => false,
        }
    }

    /// Whether the process lacks a privilege.
    pub fn is_denied(&self) -> bool {
        match self {
            Self::Open { cause, .. } | Self::Io { cause, .. } => *cause == nix::errno::Errno::EPERM,
            Self::Refused { refusal, .. } => refusal.errno == nix::errno::Errno::EPERM,
            Self::Malformed { .. } | Self::TooLong { .. } => false,
        }
    }
}
