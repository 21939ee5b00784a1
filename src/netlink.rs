//! Netlink sockets, messages, attributes, dumps and acknowledgements.
//!
//! `netfilter` uses it for nf_tables, `netns` for rtnetlink. Received bytes are bounds-checked and never trusted;
//! callers interpret the messages. A socket stays in the netns in which it was opened.

mod attr;
mod message;
mod socket;

pub use attr::{Attr, Attrs, nested};
pub use message::{Kind, Message, Messages, Refusal, Writer, flag};
pub use socket::{Dumped, Protocol, Socket};

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
    /// The kernel lacks this protocol, or the process lacks the privilege.
    #[error("opening a {protocol} socket: {source}")]
    Open { protocol: &'static str, source: nix::errno::Errno },
    /// The request was not sent, or no response came in time.
    #[error("{request}: {step}: {source}")]
    Io {
        request: &'static str,
        /// `sending` or `receiving`
        step: &'static str,
        /// `EAGAIN` means that the time limit passed.
        source: nix::errno::Errno,
    },
    #[error("{request}: {refusal}")]
    Refused { request: &'static str, refusal: Refusal },
    #[error("{request}: the kernel's answer cannot be read: {source}")]
    Malformed { request: &'static str, source: Malformed },
    /// The request or its response exceeds the size limit.
    #[error("{request}: more than {limit} bytes")]
    TooLong {
        request: &'static str,
        /// In bytes.
        limit: usize,
    },
}

impl Error {
    /// Whether a retry may succeed.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Open { source, .. } | Self::Io { source, .. } => is_temporary(*source),
            Self::Refused { refusal, .. } => refusal.is_temporary(),
            Self::Malformed { .. } | Self::TooLong { .. } => false,
        }
    }
}
