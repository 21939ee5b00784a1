//! A pod's network namespace: entering it, and the addresses and routes in it.
//!
//! `plugin` and `repair` enter a [`Netns`], which `repair` must [`find`] first. `converge` reads [`addresses`] and
//! applies [`routes`] in the calling thread's netns. `repair`, which runs permanently, enters on a separate thread that
//! ends afterwards, so that no thread of the daemon stays in a pod's netns. `plugin`, a process for one call, enters
//! with its main thread.

pub mod addresses;
mod enter;
pub mod find;
mod ipv6;
pub mod routes;
mod rtnl;

pub use addresses::HostAddresses;
pub use enter::{Identity, Netns};
pub use ipv6::loopback_has_ipv6;

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use contract::diagnostics::Documented;
use nix::errno::Errno;

/// A netns could not be entered, read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path does not exist: the pod's network is gone.
    #[error("netns {}: does not exist (any more)", path.display())]
    Gone { path: PathBuf },
    /// The file at the path is not a netns.
    #[error("netns {}: not a network namespace but {found}", path.display())]
    NotNetns { path: PathBuf, found: &'static str },
    /// The file cannot be opened or examined.
    #[error("netns {}: cannot be opened", path.display())]
    Open { path: PathBuf, source: Errno },
    /// The kernel refused entry, which requires CAP_SYS_ADMIN in this user namespace and in the one that owns the
    /// netns.
    #[error("netns {}: cannot be entered", path.display())]
    Enter { path: PathBuf, source: Errno },
    /// unshare(2) failed, which requires CAP_SYS_ADMIN.
    #[error("a new network namespace cannot be created; this needs CAP_SYS_ADMIN, which root has on the node")]
    Create(#[source] Errno),
    #[error("netns {}: cannot start a thread for it", path.display())]
    Thread { path: PathBuf, source: io::Error },
    /// The function run in the netns panicked. Occurs only if panics unwind; the release profile aborts.
    #[error("netns {}: panic inside it: {message}", path.display())]
    Panicked { path: PathBuf, message: String },
    #[error(transparent)]
    Netlink(#[from] netlink::Error),
    /// An IPv6 address, routing rule or route is needed, but IPv6 is disabled.
    #[error("IPv6 is disabled in this netns (see net.ipv6.conf.lo.disable_ipv6)")]
    Ipv6Disabled(#[source] netlink::Error),
    /// Another default route of the table precedes the route, so that marked packets would not reach the proxy. Some CNI
    /// plugins, such as `sbr`, add default routes to tables of their own.
    #[error(
        "another default route precedes the {entry}, so that marked packets would not be delivered locally; see `ip route \
         show table all`, and have the program that added the other route use another table"
    )]
    Shadowed { entry: routes::Entry },
    /// The netns has only loopback and link-local addresses, or none.
    #[error("no valid local IP address found: the netns has only {seen:?}; is the pod's interface configured yet?")]
    NoAddress { seen: Vec<IpAddr> },
}

impl Documented for Error {
    const ENTRY: &'static str = "netns-error";

    fn transparent(&self) -> Option<String> {
        match self {
            Self::Netlink(error) => Some(error.page()),
            _ => None,
        }
    }
}
