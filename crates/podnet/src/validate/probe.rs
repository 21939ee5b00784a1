//! The sockets of validation: listeners on the proxy's ports, and a client whose connection must reach one of them.

#![expect(clippy::disallowed_methods, reason = "attempts have a deadline and a pause between them")]

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, SockaddrIn6, SockaddrStorage, bind, connect, getsockopt,
    listen, setsockopt, socket, sockopt,
};
use ruleset::{Family, Probe};

use super::loopback;
use super::report::{FamilyReport, Outcome, Reason};

/// Time limit of one attempt, and the pause before the next.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(100);
/// The maximum time limit. A longer limit is shortened to it, because adding it to the clock's time could overflow.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Probes a family until redirection is proven or the time limit passes.
pub(super) fn family(probe: &Probe, family: Family) -> FamilyReport {
    let deadline = Instant::now() + probe.timeout.min(MAX_TIMEOUT);
    let (mut listeners, mut unopened) = (Vec::new(), Vec::new());
    for address in super::listen(probe, family) {
        match listener(address) {
            Ok(listener) => listeners.push(listener),
            Err(errno) => unopened.push((address, errno)),
        }
    }
    if listeners.is_empty() {
        return FamilyReport { family, attempts: 0, unopened, outcome: Outcome::Failed(Reason::NoListener) };
    }
    let target = super::target(probe, family);
    let mut attempts = 0;
    loop {
        attempts += 1;
        let timeout = deadline.saturating_duration_since(Instant::now()).clamp(PAUSE, ATTEMPT_TIMEOUT);
        let failure = match attempt(&listeners, family, target, Instant::now() + timeout) {
            Ok(outcome) => return FamilyReport { family, attempts, unopened, outcome },
            Err(reason) => reason,
        };
        if Instant::now() + PAUSE >= deadline {
            return FamilyReport { family, attempts, unopened, outcome: Outcome::Failed(failure) };
        }
        thread::sleep(PAUSE);
    }
}

/// Makes one connection and sends a random token over it, by which the listener recognizes the connection of this
/// attempt.
fn attempt(listeners: &[TcpListener], family: Family, target: SocketAddr, until: Instant) -> Result<Outcome, Reason> {
    let mut client = dial(family, target, until)?;
    let unreachable = |error: std::io::Error| Reason::Unreachable { target, source: errno(&error) };
    let own = client.local_addr().map_err(unreachable)?;
    let token = token();
    // The peer may already be gone; then it was not our listener.
    client.write_all(&token).map_err(|_| Reason::WrongListener { target })?;
    while let Some((mut stream, peer, listener)) = accept(listeners, until) {
        if peer != own || !sends_token(&mut stream, &token, until) {
            continue;
        }
        let original = original_destination(&stream, family);
        return match original {
            Some(original) if original == target => Ok(Outcome::Proven { original, listener }),
            original => Err(Reason::WrongDestination { target, original }),
        };
    }
    Err(Reason::WrongListener { target })
}

/// Connects to `target` from a loopback address.
fn dial(family: Family, target: SocketAddr, until: Instant) -> Result<TcpStream, Reason> {
    let unreachable = |source| Reason::Unreachable { target, source };
    let socket = tcp(family).map_err(unreachable)?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(loopback(family), 0))).map_err(unreachable)?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(target)) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(Errno::ECONNREFUSED) => return Err(Reason::Refused { target }),
        Err(source) => return Err(unreachable(source)),
    }
    let stream = TcpStream::from(socket);
    if ready(&[&stream], PollFlags::POLLOUT, until).is_none() {
        return Err(Reason::TimedOut { target });
    }
    match stream.take_error().map(|error| error.map(|error| errno(&error))) {
        Ok(None) => Ok(stream),
        Ok(Some(Errno::ECONNREFUSED)) => Err(Reason::Refused { target }),
        Ok(Some(source)) => Err(unreachable(source)),
        Err(error) => Err(unreachable(errno(&error))),
    }
}

/// Opens a listener that shares the port with a running proxy, as the proxy's own workers do.
fn listener(address: SocketAddr) -> Result<TcpListener, Errno> {
    let socket = tcp(if address.is_ipv4() { Family::V4 } else { Family::V6 })?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    setsockopt(&socket, sockopt::ReusePort, &true)?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
    listen(&socket, Backlog::new(16)?)?;
    Ok(TcpListener::from(socket))
}

fn tcp(family: Family) -> Result<OwnedFd, Errno> {
    let domain = match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    };
    socket(domain, SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)
}

/// Accepts the next connection at any listener; returns it with its source address and the local address.
fn accept(listeners: &[TcpListener], until: Instant) -> Option<(TcpStream, SocketAddr, SocketAddr)> {
    loop {
        let listener = &listeners[ready(listeners, PollFlags::POLLIN, until)?];
        // A connection may vanish between the two calls; `ready` limits the time.
        if let Ok((stream, peer)) = listener.accept() {
            let here = stream.local_addr().or_else(|_| listener.local_addr()).ok()?;
            return Some((stream, peer, here));
        }
    }
}

/// Whether the connection sends the token.
fn sends_token(stream: &mut TcpStream, token: &[u8], until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now()).max(PAUSE);
    let mut brought = vec![0; token.len()];
    stream.set_read_timeout(Some(left)).is_ok() && stream.read_exact(&mut brought).is_ok() && brought == token
}

/// Returns the original destination from conntrack; none if the connection is not tracked (ENOENT).
fn original_destination(stream: &TcpStream, family: Family) -> Option<SocketAddr> {
    match family {
        Family::V4 => {
            let original = SockaddrIn::from(getsockopt(stream, sockopt::OriginalDst).ok()?);
            Some(SocketAddr::V4(original.into()))
        }
        Family::V6 => {
            let original = SockaddrIn6::from(getsockopt(stream, sockopt::Ip6tOriginalDst).ok()?);
            Some(SocketAddr::V6(original.into()))
        }
    }
}

/// Returns the index of the first of `sockets` that is ready.
fn ready<S: AsFd>(sockets: &[S], flags: PollFlags, until: Instant) -> Option<usize> {
    let mut fds: Vec<_> = sockets.iter().map(|socket| PollFd::new(socket.as_fd(), flags)).collect();
    loop {
        let left = until.saturating_duration_since(Instant::now()).as_millis();
        match poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
            Ok(0) => return None,
            Ok(_) => return fds.iter().position(|fd| fd.any() == Some(true)),
            Err(Errno::EINTR) => {}
            Err(_) => return None,
        }
    }
}

/// Generates a token from the random seeds of two hash maps.
fn token() -> [u8; 16] {
    let word = || u128::from(RandomState::new().build_hasher().finish());
    (word() << 64 | word()).to_be_bytes()
}

fn errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ() {
        assert_ne!(token(), token());
    }

    #[test]
    fn two_listeners_share_a_port() {
        let first = listener("127.0.0.1:0".parse().unwrap()).unwrap();
        assert!(listener(first.local_addr().unwrap()).is_ok());
    }

    #[test]
    fn a_listener_does_not_displace_an_ordinary_one() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(listener(first.local_addr().unwrap()).unwrap_err(), Errno::EADDRINUSE);
    }
}
