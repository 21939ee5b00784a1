//! A client for trials of the netns tier, which run it in a namespace. Sends one request and prints the response, `refused` or `silence`.
//! Usage: `connect tcp|udp DESTINATION [SOURCE [MARK]]`. A socket with a mark may have any source address, as ztunnel's sockets do.
//! Datagrams from peers other than the destination are not responses.

#![expect(clippy::disallowed_methods, reason = "opens the sockets that the trial asks for")]
#![expect(clippy::print_stdout, reason = "prints the result for the test")]

use std::error::Error;
use std::io::{self, ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _};
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

/// The time after which a missing response is printed as `silence`. No trial expects it, so only a failure takes as long.
const TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let protocol = arguments.next().ok_or("no protocol")?;
    let to: SocketAddr = arguments.next().ok_or("no destination")?.parse()?;
    let unspecified: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let from: IpAddr = arguments.next().map_or(Ok(unspecified), |text| text.parse())?;
    let from = SocketAddr::new(from, 0);
    let mark = arguments.next().map(|text| text.parse()).transpose()?;
    let response = if protocol == "udp" { udp(from, to, mark) } else { tcp(from, to, mark) };
    match response {
        Ok(text) => println!("{}", text.trim_end()),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => println!("refused"),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => println!("silence"),
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EINPROGRESS as i32) => println!("silence"),
        Err(error) => println!("{error}"),
    }
    Ok(())
}

/// Sets the options of ztunnel's sockets, if there is a mark.
fn mark_socket(socket: &impl AsFd, mark: Option<u32>) -> io::Result<()> {
    if let Some(mark) = mark {
        setsockopt(socket, sockopt::Mark, &mark)?;
        // `IP_TRANSPARENT` sets a flag of the socket that the kernel's route lookups read for both families.
        setsockopt(socket, sockopt::IpTransparent, &true)?;
    }
    Ok(())
}

fn tcp(from: SocketAddr, to: SocketAddr, mark: Option<u32>) -> io::Result<String> {
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let timeout = TimeVal::new(TIMEOUT.as_secs() as i64, 0);
    setsockopt(&socket, sockopt::SendTimeout, &timeout)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &timeout)?;
    mark_socket(&socket, mark)?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(from))?;
    connect(socket.as_raw_fd(), &SockaddrStorage::from(to))?;
    let mut text = String::new();
    TcpStream::from(socket).read_to_string(&mut text)?;
    Ok(text)
}

fn udp(from: SocketAddr, to: SocketAddr, mark: Option<u32>) -> io::Result<String> {
    let socket = UdpSocket::bind(from)?;
    mark_socket(&socket, mark)?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.send(b"who?")?;
    let mut response = [0; 256];
    let length = socket.recv(&mut response)?;
    Ok(String::from_utf8_lossy(&response[..length]).into_owned())
}
