//! A server in a namespace of the netns tier that responds with its name, its port and the original destination. Usage:
//! `answer NAME ID PORT…`, where ID is the user and group to run as, and a port is `tcp/8080`, `udp/53`,
//! `transparent/15006`, or with an address `udp/127.0.0.1:15053`. Prints `ready` when it listens; ends with its input.

#![expect(clippy::print_stdout, reason = "the test reads it")]

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::thread;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, SockaddrIn6, SockaddrStorage, bind, getsockopt, listen,
    setsockopt, socket, sockopt,
};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("no name")?;
    let id = arguments.next().ok_or("no id")?.parse()?;
    let sockets: Vec<String> = arguments.collect();
    let (privileged, others): (Vec<_>, Vec<_>) = sockets.iter().partition(|text| text.starts_with("transparent/"));
    let (mut tcp, mut udp) = (Vec::new(), Vec::new());
    listen_on(&privileged, &mut tcp, &mut udp)?;
    // Rules match the user that opened a socket, not its current owner.
    setgroups(&[])?;
    setgid(Gid::from_raw(id))?;
    setuid(Uid::from_raw(id))?;
    listen_on(&others, &mut tcp, &mut udp)?;
    for listener in tcp {
        let name = name.clone();
        thread::spawn(move || {
            listener.incoming().flatten().try_for_each(|stream| answer_stream(&name, &listener, stream))
        });
    }
    for socket in udp {
        let name = name.clone();
        thread::spawn(move || answer_datagrams(&name, &socket));
    }
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn listen_on(texts: &[&String], tcp: &mut Vec<TcpListener>, udp: &mut Vec<UdpSocket>) -> Result<(), Box<dyn Error>> {
    for text in texts {
        let (kind, address) = text.split_once('/').ok_or("a port is tcp/80 or udp/80")?;
        for address in addresses(address)? {
            match kind {
                "udp" => udp.push(UdpSocket::from(open(address, SockType::Datagram, false)?)),
                kind => tcp.push(TcpListener::from(open(address, SockType::Stream, kind == "transparent")?)),
            }
        }
    }
    Ok(())
}

/// A port without an address listens on all addresses of the families that the kernel has.
fn addresses(text: &str) -> Result<Vec<SocketAddr>, Box<dyn Error>> {
    if let Ok(address) = text.parse() {
        return Ok(vec![address]);
    }
    let port: u16 = text.parse()?;
    let ipv6 = socket(AddressFamily::Inet6, SockType::Stream, SockFlag::SOCK_CLOEXEC, None);
    let has_ipv6 = !matches!(ipv6, Err(Errno::EAFNOSUPPORT));
    let every: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    Ok(every.into_iter().filter(|ip| ip.is_ipv4() || has_ipv6).map(|ip| SocketAddr::new(ip, port)).collect())
}

fn open(address: SocketAddr, kind: SockType, transparent: bool) -> nix::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    if address.is_ipv6() {
        setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
    }
    if transparent {
        // The IPv4 option sets the flag that the lookups of both families read.
        setsockopt(&socket, sockopt::IpTransparent, &true)?;
    }
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
    if kind == SockType::Stream {
        listen(&socket, Backlog::new(64)?)?;
    }
    Ok(socket)
}

fn answer_stream(name: &str, listener: &TcpListener, mut stream: TcpStream) -> std::io::Result<()> {
    let port = listener.local_addr()?.port();
    let (here, peer) = (stream.local_addr()?, stream.peer_addr()?);
    let original = original(&stream, here.is_ipv4()).unwrap_or(here);
    // A disconnected client must not end the server.
    let _ = writeln!(stream, "{name} {port} for {original} from {}", peer.ip());
    Ok(())
}

fn answer_datagrams(name: &str, socket: &UdpSocket) -> std::io::Result<()> {
    let port = socket.local_addr()?.port();
    loop {
        let (_, peer) = socket.recv_from(&mut [0; 64])?;
        let _ = socket.send_to(format!("{name} {port} for udp from {}\n", peer.ip()).as_bytes(), peer);
    }
}

fn original(stream: &TcpStream, v4: bool) -> Option<SocketAddr> {
    if v4 {
        return Some(SocketAddr::V4(SockaddrIn::from(getsockopt(stream, sockopt::OriginalDst).ok()?).into()));
    }
    Some(SocketAddr::V6(SockaddrIn6::from(getsockopt(stream, sockopt::Ip6tOriginalDst).ok()?).into()))
}
