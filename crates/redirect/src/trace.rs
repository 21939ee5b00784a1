//! Simulates the netfilter traversal of a connection's first packet: which rule redirects, drops or passes it.
//!
//! Pure. The input has the format of `iptables-save` or `iptables-restore`; the caller reads it from a file or a netns, and
//! `cnictl` formats the result. Conditions that cannot be evaluated without the kernel (sets, rates) make the verdict
//! undetermined; their results are never guessed.

mod condition;
mod error;
mod saved;
mod target;
mod walk;
mod words;

pub use error::Error;
pub use saved::Ruleset;
pub use walk::{Effect, Hop, Trace, Verdict, trace};

use std::net::SocketAddr;

use ruleset::{Family, Proto};

/// The name of the loopback device.
const LO: &str = "lo";

/// The source port of a connection if none is given: the first of Linux' ephemeral ports.
pub const EPHEMERAL_PORT: u16 = 32768;

/// The side of the pod on which a connection starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Direction {
    /// From outside of the pod, in through `interface`.
    Inbound { interface: String },
    /// From a process in the pod with this effective user and group. Before redirection the packet leaves through
    /// `interface`, which is `lo` for the pod's own addresses.
    Outbound { interface: String, uid: u32, gid: u32 },
}

/// A connection, or an exchange of datagrams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    pub direction: Direction,
    pub protocol: Proto,
    pub source: SocketAddr,
    /// The destination that the client connects to.
    pub destination: SocketAddr,
}

/// Returns the family whose rules apply to a destination.
pub fn family(destination: SocketAddr) -> Family {
    if destination.is_ipv4() { Family::V4 } else { Family::V6 }
}
