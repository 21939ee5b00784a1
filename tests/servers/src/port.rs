//! Ports for programs that cannot report which one they have chosen.
//!
//! Linux assigns ports from 32768 on to sockets without a port of their own. A port from this range that a test has
//! released may therefore be taken before its program listens. The ports here are below the range, in blocks; a process
//! owns a block as long as it runs.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr as Address, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, PoisonError};

/// The ports of all blocks.
pub const ALL: std::ops::Range<u16> = 20_000..30_000;
/// The number of ports in a block.
const BLOCK: u16 = 100;

/// A block of ports with the abstract socket whose name reserves it in this network namespace.
struct Block {
    /// The ports that are not assigned yet.
    left: std::ops::Range<u16>,
    _name: UnixDatagram,
}

/// Returns a port of both families on which nothing listens. No other call in any process returns it.
///
/// # Panics
///
/// If all blocks are in use.
pub fn free() -> u16 {
    static BLOCKS: Mutex<Vec<Block>> = Mutex::new(Vec::new());
    let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let found = blocks.last_mut().and_then(|block| block.left.find(|port| is_unused(*port)));
        if let Some(port) = found {
            return port;
        }
        blocks.push(reserve().expect("a block of ports that no other process has reserved"));
    }
}

/// Reserves a block, starting the search at one that depends on the process.
fn reserve() -> Option<Block> {
    let firsts: Vec<u16> = ALL.step_by(BLOCK.into()).collect();
    let start = std::process::id() as usize % firsts.len();
    firsts.iter().cycle().skip(start).take(firsts.len()).find_map(|&first| {
        let name = SocketAddr::from_abstract_name(format!("istio-cni-tests-port-{first}")).unwrap();
        Some(Block { left: first..first + BLOCK, _name: UnixDatagram::bind_addr(&name).ok()? })
    })
}

/// Whether a program can listen on the port in each family that the machine has.
fn is_unused(port: u16) -> bool {
    let addresses = [Address::from((Ipv4Addr::UNSPECIFIED, port)), Address::from((Ipv6Addr::UNSPECIFIED, port))];
    let is_taken = |address| TcpListener::bind(address).is_err_and(|error| error.kind() == ErrorKind::AddrInUse);
    !addresses.into_iter().any(is_taken)
}
