//! A sidecar for test pods that accepts redirected connections and forwards them, as Envoy does.
//!
//! Both outbound connections (port 15001) and inbound ones (port 15006) are forwarded to their original destination.
//! Inbound ones are forwarded with the source address 127.0.0.6 or ::6, by which the rules recognize the proxy's
//! connection to the application. The response is `WHO from ADDRESS to ADDRESS`, where the second address is the
//! original destination, followed by the forwarded response.

#![expect(clippy::disallowed_methods, reason = "serves and connects, as a proxy does")]

use std::error::Error;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::thread::{self, JoinHandle};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, SockaddrIn6, SockaddrStorage, bind, connect, getsockopt,
    listen, setsockopt, socket, sockopt,
};

// The ports are repeated here, because linking the library would make the program ten times as large.
const OUTBOUND: u16 = 15001;
const INBOUND: u16 = 15006;
/// This port is never redirected.
const READY: u16 = 15021;

/// The direction of a connection.
#[derive(Debug, Clone, Copy)]
enum Direction {
    Inbound,
    Outbound,
    /// A connection to the proxy itself, such as a readiness probe.
    Ready,
}

impl Direction {
    fn port(self) -> u16 {
        match self {
            Self::Inbound => INBOUND,
            Self::Outbound => OUTBOUND,
            Self::Ready => READY,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Inbound => "istio-proxy/inbound",
            Self::Outbound => "istio-proxy/outbound",
            Self::Ready => "istio-proxy/ready",
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut listeners = Vec::new();
    for direction in [Direction::Inbound, Direction::Outbound, Direction::Ready] {
        for any in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            listeners.push(start(direction, SocketAddr::new(any, direction.port()))?);
        }
    }
    announce("istio-proxy listens")?;
    for listener in listeners {
        let _ = listener.join();
    }
    Err("all listeners have ended".into())
}

fn start(direction: Direction, address: SocketAddr) -> io::Result<JoinHandle<()>> {
    let listener = listener(address)?;
    Ok(thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                if let Err(e) = serve(direction, &stream) {
                    let _ = announce(&format!("{} failed: {e}", direction.name()));
                }
            });
        }
    }))
}

/// Listens on an address. Each family has its own socket, because the socket option for the original destination
/// differs between the families.
fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let fd = socket(family(address.ip()), SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    if address.is_ipv6() {
        setsockopt(&fd, sockopt::Ipv6V6Only, &true)?;
    } else {
        // TPROXY needs this option. In other modes the program lacks the capability to set it, and does not need it.
        let _ = setsockopt(&fd, sockopt::IpTransparent, &true);
    }
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address))?;
    listen(&fd, Backlog::new(64)?)?;
    Ok(fd.into())
}

fn serve(direction: Direction, mut client: &TcpStream) -> Result<(), Box<dyn Error>> {
    let from = client.peer_addr()?;
    let local = client.local_addr()?;
    // TPROXY keeps the destination; REDIRECT replaces it by the proxy's port.
    let redirected = local.port() == direction.port() && direction.port() != READY;
    let to = if redirected { original_destination(client)? } else { local };
    let line = format!("{} from {from} to {to}", direction.name());
    announce(&line)?;
    writeln!(client, "{line}")?;
    let mut question = String::new();
    BufReader::new(client).read_line(&mut question)?;
    if matches!(direction, Direction::Ready) {
        return Ok(());
    }
    let mut server = onward(direction, to).map_err(|e| {
        let _ = writeln!(client, "{} cannot reach {to}: {e}", direction.name());
        e
    })?;
    server.write_all(question.as_bytes())?;
    io::copy(&mut server, &mut client)?;
    Ok(())
}

/// Connects to the original destination. For an inbound connection, the source address is the proxy's own.
fn onward(direction: Direction, to: SocketAddr) -> io::Result<TcpStream> {
    let fd = socket(family(to.ip()), SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    if matches!(direction, Direction::Inbound) {
        let own = match to.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::new(127, 0, 0, 6)),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6)),
        };
        bind(fd.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(own, 0)))?;
    }
    connect(fd.as_raw_fd(), &SockaddrStorage::from(to))?;
    Ok(fd.into())
}

fn original_destination(stream: &TcpStream) -> io::Result<SocketAddr> {
    Ok(if stream.local_addr()?.is_ipv4() {
        SocketAddr::V4(SockaddrIn::from(getsockopt(stream, sockopt::OriginalDst)?).into())
    } else {
        SocketAddr::V6(SockaddrIn6::from(getsockopt(stream, sockopt::Ip6tOriginalDst)?).into())
    })
}

fn family(ip: IpAddr) -> AddressFamily {
    if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn announce(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}
