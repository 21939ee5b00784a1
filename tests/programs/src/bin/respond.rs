//! A server for trials of the netns tier, which run it in a namespace. It responds with its name, its port and the
//! original destination.
//!
//! Usage: `respond NAME ID[/MARK] PORT…`, where ID is the user and group to run as, MARK the mark of the sockets, and a
//! port is `tcp/8080`, `udp/53`, `transparent/15006`, or with an address `udp/127.0.0.1:15053`. Prints `ready` when it
//! listens; exits at the end of standard input.

#![expect(clippy::disallowed_methods, reason = "serves in threads of its own")]
#![expect(clippy::print_stdout, reason = "prints `ready` for the test")]

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
    let id = arguments.next().ok_or("no id")?;
    let (id, mark) = id.split_once('/').map_or((id.as_str(), None), |(id, mark)| (id, Some(mark)));
    let (id, mark) = (id.parse()?, mark.map(str::parse).transpose()?);
    let sockets: Vec<String> = arguments.collect();
    let (privileged, others): (Vec<_>, Vec<_>) = sockets.iter().partition(|text| text.starts_with("transparent/"));
    let (mut tcp, mut udp) = (Vec::new(), Vec::new());
    listen_on(&privileged, mark, &mut tcp, &mut udp)?;
    // The user is changed before the remaining sockets are opened: netfilter matches the user that opened a socket, not
    // its current owner.
    setgroups(&[])?;
    setgid(Gid::from_raw(id))?;
    setuid(Uid::from_raw(id))?;
    listen_on(&others, mark, &mut tcp, &mut udp)?;
    for listener in tcp {
        let name = name.clone();
        thread::spawn(move || {
            listener.incoming().flatten().try_for_each(|stream| respond_to_stream(&name, &listener, stream))
        });
    }
    for socket in udp {
        let name = name.clone();
        thread::spawn(move || respond_to_datagrams(&name, &socket));
    }
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn listen_on(
    texts: &[&String],
    mark: Option<u32>,
    tcp: &mut Vec<TcpListener>,
    udp: &mut Vec<UdpSocket>,
) -> Result<(), Box<dyn Error>> {
    for text in texts {
        let (kind, address) = text.split_once('/').ok_or("a port is tcp/80 or udp/80")?;
        for address in addresses(address)? {
            match kind {
                "udp" => udp.push(UdpSocket::from(open(address, SockType::Datagram, false, mark)?)),
                kind => tcp.push(TcpListener::from(open(address, SockType::Stream, kind == "transparent", mark)?)),
            }
        }
    }
    Ok(())
}

/// Returns the addresses to listen on. A port without an address means all addresses, of each family that the kernel
/// has.
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

fn open(address: SocketAddr, kind: SockType, transparent: bool, mark: Option<u32>) -> nix::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    if address.is_ipv6() {
        setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
    }
    if let Some(mark) = mark {
        setsockopt(&socket, sockopt::Mark, &mark)?;
    }
    if transparent {
        // `IP_TRANSPARENT` sets a flag of the socket that the kernel's route lookups read for both families.
        setsockopt(&socket, sockopt::IpTransparent, &true)?;
    }
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
    if kind == SockType::Stream {
        listen(&socket, Backlog::new(64)?)?;
    }
    Ok(socket)
}

fn respond_to_stream(name: &str, listener: &TcpListener, mut stream: TcpStream) -> std::io::Result<()> {
    let port = listener.local_addr()?.port();
    let (here, peer) = (stream.local_addr()?, stream.peer_addr()?);
    let original = original(&stream, here.is_ipv4()).unwrap_or(here);
    // A disconnected client must not end the server.
    let _ = writeln!(stream, "{name} {port} for {original} from {}", peer.ip());
    Ok(())
}

fn respond_to_datagrams(name: &str, socket: &UdpSocket) -> std::io::Result<()> {
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
