//! A minimal process with which `make bench` compares the plugin's ADD. It enters the netns named by its argument, as
//! the plugin does, sends the batch on standard input to nf_tables in one `sendto`, reads the one acknowledgement, and
//! exits.
//!
//! It is built with the plugin's profile and target. It must do nothing that an ADD could avoid.

#![expect(clippy::disallowed_methods, reason = "enters a netns and ends, as the plugin does")]

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::process::ExitCode;

use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket};

/// The size limit of a batch, in bytes.
const BATCH: usize = 32 << 10;
/// The message type `NLMSG_ERROR`: an acknowledgement if the number after the header is 0, otherwise an error.
const NLMSG_ERROR: [u8; 2] = [2, 0];

fn main() -> ExitCode {
    if replay().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn replay() -> io::Result<()> {
    let netns = std::env::args_os().nth(1).ok_or(io::ErrorKind::InvalidInput)?;
    setns(File::open(netns)?, CloneFlags::CLONE_NEWNET)?;
    let mut batch = Vec::with_capacity(BATCH);
    io::stdin().lock().read_to_end(&mut batch)?;

    let nf_tables =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkNetFilter)?;
    sendto(nf_tables.as_raw_fd(), &batch, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut response = [0; 4096];
    let length = recv(nf_tables.as_raw_fd(), &mut response, MsgFlags::empty())?;
    match response.get(..length) {
        Some(ack) if ack.get(4..6) == Some(&NLMSG_ERROR) && ack.get(16..20) == Some(&[0; 4]) => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
