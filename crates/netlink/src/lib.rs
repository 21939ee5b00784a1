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
pub fn is_temporary(errno: nix::errno::Errno) -> bool {
    use nix::errno::Errno;
    matches!(
        errno,
        Errno::EAGAIN | Errno::EBUSY | Errno::EINTR | Errno::ENOBUFS | Errno::ENOMEM | Errno::EMFILE | Errno::ENFILE
    )
}

/// Whether the kernel lacks what was requested. `EINVAL`: nfnetlink has no such subsystem or message type. `ENOENT`: there
/// is no extension of this name. `EPROTONOSUPPORT`: the extension has no such revision. `EOPNOTSUPP` and `EAFNOSUPPORT`:
/// the family is not supported. All other refusals, such as `EPERM` and `ENOMEM`, do not tell what the kernel supports.
fn is_unsupported(errno: nix::errno::Errno) -> bool {
    use nix::errno::Errno;
    matches!(errno, Errno::EINVAL | Errno::ENOENT | Errno::EPROTONOSUPPORT | Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT)
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

    /// Whether the kernel lacks the protocol, the subsystem or the extension of the request.
    pub fn is_unsupported(&self) -> bool {
        use nix::errno::Errno;
        match self {
            Self::Open { cause, .. } => matches!(cause, Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT),
            Self::Refused { refusal, .. } => is_unsupported(refusal.errno),
            Self::Io { .. } | Self::Malformed { .. } | Self::TooLong { .. } => false,
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

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn only_a_permanent_refusal_of_the_request_means_that_the_kernel_lacks_it() {
        let open = |cause| Error::Open { protocol: "netfilter netlink", cause };
        let refused = |errno| Error::Refused { request: "x", refusal: Refusal { seq: 1, errno, text: None } };
        let io = |cause| Error::Io { request: "x", step: "sending", cause };
        for (error, expected) in [
            (open(Errno::EPROTONOSUPPORT), true),
            (open(Errno::EAFNOSUPPORT), true),
            (open(Errno::EMFILE), false),
            (open(Errno::EPERM), false),
            (refused(Errno::EINVAL), true),
            (refused(Errno::ENOENT), true),
            (refused(Errno::EPROTONOSUPPORT), true),
            (refused(Errno::EOPNOTSUPP), true),
            (refused(Errno::EPERM), false),
            (refused(Errno::EACCES), false),
            (refused(Errno::ENOMEM), false),
            (refused(Errno::EAGAIN), false),
            (refused(Errno::EBUSY), false),
            (refused(Errno::ENOBUFS), false),
            (refused(Errno::EINTR), false),
            (io(Errno::EINVAL), false),
        ] {
            assert_eq!(error.is_unsupported(), expected, "{error}");
            assert!(!(error.is_unsupported() && error.is_temporary()), "{error}");
        }
    }
}
