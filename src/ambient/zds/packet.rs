//! A connection of sequenced packets. Each packet holds one message; a packet that the agent sends may also carry one
//! file descriptor.
//!
//! `connection` sends and receives packets with it. This module does not decode the messages.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, recvmsg, sendmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::message::RESPONSE_SIZE;

/// Why a packet cannot be sent or received. The connection cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The peer closed the connection, or sent an empty packet, which the kernel reports in the same way.
    #[error("ztunnel closed the connection")]
    Closed,
    #[error("ztunnel sent a packet of more than {RESPONSE_SIZE} bytes")]
    TooLong,
    #[error("ztunnel sent file descriptors, which only the agent may send")]
    Descriptors,
    #[error("the connection to ztunnel failed")]
    Io(#[source] io::Error),
}

/// A connection whose socket is of the type `SOCK_SEQPACKET`.
///
/// tokio has no type for such sockets, but a [`UnixStream`] can hold one: sockets of both types are accepted and registered in the
/// same way. The methods of `UnixStream` to read and write are for streams only, and are not used.
#[derive(Debug)]
pub struct Packets(UnixStream);

impl Packets {
    pub fn new(socket: UnixStream) -> Self {
        Self(socket)
    }

    /// Sends a packet, with a file descriptor if there is one. Waits while the peer's queue is full.
    pub async fn send(&self, packet: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        // A packet is sent whole or not at all.
        self.0.async_io(Interest::WRITABLE, || send(&self.0, packet, descriptor)).await.map_err(of_io)
    }

    /// Receives a packet. Cancelling the future loses no packet.
    pub async fn receive(&self) -> Result<Vec<u8>, Error> {
        self.0.async_io(Interest::READABLE, || receive(&self.0)).await.map_err(of_io)?
    }

    /// Receives a packet if one has arrived.
    pub fn received(&self) -> Result<Option<Vec<u8>>, Error> {
        match receive(&self.0) {
            Ok(packet) => packet.map(Some),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(of_io(error)),
        }
    }
}

/// Maps the errors by which the kernel reports that the peer is gone to [`Error::Closed`].
fn of_io(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Error::Closed,
        _ => Error::Io(error),
    }
}

fn send(socket: &UnixStream, packet: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let descriptors = descriptor.map(|descriptor| [descriptor.as_raw_fd()]);
    let rights = descriptors.as_ref().map(|descriptors| [ControlMessage::ScmRights(descriptors)]);
    let control: &[ControlMessage<'_>] = rights.as_ref().map_or(&[], |rights| rights);
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    let socket = socket.as_fd().as_raw_fd();
    uninterrupted(|| sendmsg::<()>(socket, &[IoSlice::new(packet)], control, flags, None)).map(drop)
}

/// Receives a packet without a buffer for control messages: the kernel then installs no file descriptor that the peer
/// sent, and reports that it discarded some.
fn receive(socket: &UnixStream) -> io::Result<Result<Vec<u8>, Error>> {
    let mut buffer = vec![0; RESPONSE_SIZE];
    let socket = socket.as_fd().as_raw_fd();
    let (size, flags) = uninterrupted(|| {
        let mut parts = [IoSliceMut::new(&mut buffer)];
        recvmsg::<()>(socket, &mut parts, None, MsgFlags::MSG_DONTWAIT).map(|message| (message.bytes, message.flags))
    })?;
    if flags.contains(MsgFlags::MSG_CTRUNC) {
        return Ok(Err(Error::Descriptors));
    }
    if flags.contains(MsgFlags::MSG_TRUNC) {
        return Ok(Err(Error::TooLong));
    }
    if size == 0 {
        return Ok(Err(Error::Closed));
    }
    buffer.truncate(size);
    Ok(Ok(buffer))
}

/// Repeats a system call that a signal interrupts.
fn uninterrupted<T>(mut call: impl FnMut() -> nix::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            done => return done.map_err(io::Error::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream as StdStream;

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    use super::*;

    /// Returns a connection and the descriptor of its other end.
    fn pair() -> (Packets, OwnedFd) {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (own, peer) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
        (Packets::new(UnixStream::from_std(StdStream::from(own)).unwrap()), peer)
    }

    fn sent(peer: &OwnedFd, packet: &[u8], descriptors: &[i32]) {
        let rights = [ControlMessage::ScmRights(descriptors)];
        let control = if descriptors.is_empty() { &[] } else { &rights[..] };
        sendmsg::<()>(peer.as_raw_fd(), &[IoSlice::new(packet)], control, MsgFlags::empty(), None).unwrap();
    }

    #[tokio::test]
    async fn packets_keep_their_bounds() {
        let (packets, peer) = pair();
        for packet in [&b"a"[..], b"bc", &[7; RESPONSE_SIZE]] {
            sent(&peer, packet, &[]);
        }
        assert_eq!(packets.receive().await.unwrap(), b"a");
        assert_eq!(packets.received().unwrap().unwrap(), b"bc");
        assert_eq!(packets.receive().await.unwrap(), [7; RESPONSE_SIZE]);
        assert!(packets.received().unwrap().is_none());
        drop(peer);
        assert!(matches!(packets.receive().await, Err(Error::Closed)));
        assert!(matches!(packets.send(b"x", None).await, Err(Error::Closed)));
    }

    #[tokio::test]
    async fn packets_that_are_too_long_or_carry_descriptors_are_refused() {
        let (packets, peer) = pair();
        let file = tempfile::tempfile().unwrap();
        sent(&peer, &[7; RESPONSE_SIZE + 1], &[]);
        sent(&peer, b"a", &[file.as_raw_fd()]);
        sent(&peer, b"b", &[file.as_raw_fd(); 253]);
        sent(&peer, b"c", &[]);
        assert!(matches!(packets.receive().await, Err(Error::TooLong)));
        assert!(matches!(packets.receive().await, Err(Error::Descriptors)));
        assert!(matches!(packets.receive().await, Err(Error::Descriptors)));
        assert_eq!(packets.receive().await.unwrap(), b"c");
    }

    #[tokio::test]
    async fn a_packet_carries_its_descriptor() {
        let (packets, peer) = pair();
        let file = tempfile::tempfile().unwrap();
        packets.send(b"with", Some(file.as_fd())).await.unwrap();
        packets.send(b"without", None).await.unwrap();
        let read = |expected: &[u8], descriptors: usize| {
            let (mut bytes, mut control) = ([0; 16], nix::cmsg_space!([i32; 2]));
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let message =
                recvmsg::<()>(peer.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC).unwrap();
            let rights: usize = message.cmsgs().unwrap().map(|control| format!("{control:?}")).count();
            assert_eq!((message.bytes, rights), (expected.len(), descriptors));
            assert!(bytes.starts_with(expected));
        };
        read(b"with", 1);
        read(b"without", 0);
    }

    #[tokio::test]
    async fn a_peer_that_reads_nothing_makes_the_sender_wait() {
        let (packets, _peer) = pair();
        // Sends up to 16 MiB, of which the kernel queues only a fraction.
        let fill = async {
            for _ in 0..16_384 {
                packets.send(&[0; 1024], None).await.unwrap();
            }
        };
        let waited = tokio::time::timeout(std::time::Duration::from_secs(1), fill).await;
        assert!(waited.is_err(), "the kernel's queue is limited");
    }
}
