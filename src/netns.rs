//! A pod's network namespace: entering it, and the addresses and routes in it.
//!
//! `plugin` and `repair` enter a [`Netns`], and `repair` has to [`find`] one first; `converge` reads [`addresses`] and applies
//! [`routes`] in whatever netns its thread is in. `repair` enters one on a thread that ends with the visit, so that there is
//! no way back to forget; `plugin`, a process for one call, by its main thread.

pub mod addresses;
mod enter;
pub mod find;
pub mod routes;
mod rtnl;

pub use addresses::HostAddresses;
pub use enter::Netns;

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use nix::errno::Errno;

use crate::netlink;

/// Why a netns could not be visited, read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing is at the path: the pod's network is gone.
    #[error("netns {}: nothing is there (any more)", path.display())]
    Gone {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The file at the path is something else.
    #[error("netns {}: not a network namespace but {found}", path.display())]
    NotNetns {
        /// The path.
        path: PathBuf,
        /// What is there.
        found: &'static str,
    },
    /// The file cannot be opened or looked at.
    #[error("netns {}: cannot be opened", path.display())]
    Open {
        /// The path.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
    /// The kernel refuses entry; CAP_SYS_ADMIN is needed here and in the user namespace that owns the netns.
    #[error("netns {}: cannot be entered", path.display())]
    Enter {
        /// The path.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
    /// No thread could be started for the visit.
    #[error("netns {}: no thread for the visit", path.display())]
    Thread {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What was done in the netns panicked. Only where panics unwind; the release profile aborts.
    #[error("netns {}: the visit panicked: {message}", path.display())]
    Panicked {
        /// The path.
        path: PathBuf,
        /// The panic's message.
        message: String,
    },
    /// A conversation with the kernel's routing subsystem failed.
    #[error(transparent)]
    Netlink(#[from] netlink::Error),
    /// The pod has IPv6 addresses, but IPv6 is turned off where it is needed.
    #[error("IPv6 is disabled in this netns (see net.ipv6.conf.lo.disable_ipv6)")]
    Ipv6Disabled(#[source] netlink::Error),
    /// Only loopback and link-local addresses, or none.
    #[error("no valid local IP address found: the netns has only {seen:?}; is the pod's interface configured yet?")]
    NoAddress {
        /// The addresses that it has.
        seen: Vec<IpAddr>,
    },
}
