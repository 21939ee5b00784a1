//! Netlink as the kernel speaks it: sockets, messages, attributes, dumps and acknowledgements.
//!
//! `netfilter` talks nf_tables through it, `netns` rtnetlink. Bytes that come in are bounds-checked and never trusted;
//! what a message means is the caller's business. A socket stays in the netns in which it was opened.

mod attr;
mod message;
mod socket;

pub use attr::{Attr, Attrs, nested};
pub use message::{Kind, Message, Messages, Refusal, Writer, flag};
pub use socket::{Dumped, Protocol, Socket};

/// Bytes that are not what netlink promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// Whether the kernel may answer otherwise next time: it was busy, interrupted, or short of memory or descriptors.
fn is_temporary(errno: nix::errno::Errno) -> bool {
    use nix::errno::Errno;
    matches!(
        errno,
        Errno::EAGAIN | Errno::EBUSY | Errno::EINTR | Errno::ENOBUFS | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE
    )
}

/// Why a conversation with the kernel failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No socket: a kernel without this protocol, or no privilege.
    #[error("opening a {protocol} socket: {source}")]
    Open {
        /// The protocol's name.
        protocol: &'static str,
        /// The kernel's reason.
        source: nix::errno::Errno,
    },
    /// The request did not leave, or no answer came in time.
    #[error("{request}: {step}: {source}")]
    Io {
        /// What was asked.
        request: &'static str,
        /// `sending` or `receiving`
        step: &'static str,
        /// The kernel's reason; `EAGAIN` is the time limit.
        source: nix::errno::Errno,
    },
    /// The kernel refused a message.
    #[error("{request}: {refusal}")]
    Refused {
        /// What was asked.
        request: &'static str,
        /// Which message, and why.
        refusal: Refusal,
    },
    /// The kernel's answer makes no sense.
    #[error("{request}: the kernel's answer cannot be read: {source}")]
    Malformed {
        /// What was asked.
        request: &'static str,
        /// What is wrong with it.
        source: Malformed,
    },
    /// The answer, or what was to be sent, is larger than anything sensible.
    #[error("{request}: more than {limit} bytes")]
    TooLong {
        /// What was asked.
        request: &'static str,
        /// Limit, in bytes.
        limit: usize,
    },
}

impl Error {
    /// The same may pass next time.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Open { source, .. } | Self::Io { source, .. } => is_temporary(*source),
            Self::Refused { refusal, .. } => refusal.is_temporary(),
            Self::Malformed { .. } | Self::TooLong { .. } => false,
        }
    }
}
