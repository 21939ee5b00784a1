//! Sends one request in a namespace of the netns tier and prints the response, `refused` or `silence`.
//! Usage: `ask tcp|udp DESTINATION [SOURCE]`. A datagram only counts as a response if it comes from the destination.

#![expect(clippy::print_stdout, reason = "the test reads it")]

use std::error::Error;
use std::io::{self, ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

/// The time limit of a response from another namespace.
const PATIENCE: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let protocol = arguments.next().ok_or("no protocol")?;
    let to: SocketAddr = arguments.next().ok_or("no destination")?.parse()?;
    let unspecified: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let from: IpAddr = arguments.next().map_or(Ok(unspecified), |text| text.parse())?;
    let from = SocketAddr::new(from, 0);
    let answer = if protocol == "udp" { udp(from, to) } else { tcp(from, to) };
    match answer {
        Ok(text) => println!("{}", text.trim_end()),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => println!("refused"),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => println!("silence"),
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EINPROGRESS as i32) => println!("silence"),
        Err(error) => println!("{error}"),
    }
    Ok(())
}

fn tcp(from: SocketAddr, to: SocketAddr) -> io::Result<String> {
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let patience = TimeVal::new(PATIENCE.as_secs() as i64, 0);
    setsockopt(&socket, sockopt::SendTimeout, &patience)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &patience)?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(from))?;
    connect(socket.as_raw_fd(), &SockaddrStorage::from(to))?;
    let mut text = String::new();
    TcpStream::from(socket).read_to_string(&mut text)?;
    Ok(text)
}

fn udp(from: SocketAddr, to: SocketAddr) -> io::Result<String> {
    let socket = UdpSocket::bind(from)?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(b"who?")?;
    let mut answer = [0; 256];
    let length = socket.recv(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}
