//! The program of a test pod's containers: the application, the pause container, and a client.
//!
//! Each program on the path of a request adds one line, `WHO from ADDRESS to ADDRESS`, to the response, so that the
//! client sees the path. The application has no code for redirection.

#![expect(clippy::disallowed_methods, reason = "serves and connects, as the application of a pod does")]

use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

const USAGE: &str = "usage: pod_app pause | pod_app serve PORT | pod_app connect ADDRESS:PORT";
/// The time limit of a response.
const TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["pause"] => pause(),
        ["serve", port] => serve(port.parse()?),
        ["connect", address] => connect(address.parse()?),
        _ => Err(USAGE.into()),
    }
}

/// Waits until it is killed, as the pause container does.
fn pause() -> ! {
    loop {
        std::thread::park();
    }
}

/// Responds to the first line of each connection, over IPv4 and IPv6.
fn serve(port: u16) -> Result<(), Box<dyn Error>> {
    // The socket also accepts IPv4, because Linux does not set IPV6_V6ONLY by default.
    let listener = TcpListener::bind(("::", port))?;
    announce(&format!("app listens on {port}"))?;
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || {
            if let Err(e) = respond(&stream) {
                let _ = announce(&format!("app could not respond: {e}"));
            }
        });
    }
    Ok(())
}

fn respond(mut stream: &TcpStream) -> Result<(), Box<dyn Error>> {
    let (from, to) = (plain(stream.peer_addr()?), plain(stream.local_addr()?));
    let mut request = String::new();
    BufReader::new(stream).read_line(&mut request)?;
    let line = format!("app from {from} to {to}");
    announce(&line)?;
    writeln!(stream, "{line}")?;
    Ok(())
}

/// Sends a request to `address` and prints the response.
fn connect(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    writeln!(stream, "path?")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    std::io::stdout().write_all(response.as_bytes())?;
    Ok(())
}

/// Converts IPv4-mapped addresses to IPv4.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn announce(line: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{line}")
}
