//! Peers outside the pods: a server at an address of the node, and requests from the node.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::socket::{Shutdown, shutdown};

use super::netns::Netns;
use super::trace::Trace;

/// The timeout of connections and responses, sufficient for a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A server that responds with the addresses of the connection, until the value is dropped.
#[derive(Debug)]
pub struct Outside {
    address: SocketAddr,
    listener: TcpListener,
    thread: Option<JoinHandle<()>>,
}

impl Outside {
    /// Starts a server at an address, which is added to the node's loopback interface.
    pub fn start(node: &Netns, address: SocketAddr) -> Result<Self> {
        let (length, nodad): (_, &[&str]) = if address.is_ipv4() { (32, &[]) } else { (128, &["nodad"]) };
        let cidr = format!("{}/{length}", address.ip());
        node.command("ip", &[["address", "replace", &cidr, "dev", "lo"].as_slice(), nodad].concat())?;
        let listener = node.visit(|| TcpListener::bind(address))?.with_context(|| address.to_string())?;
        let accepting = listener.try_clone()?;
        let thread = std::thread::spawn(move || {
            // The loop ends when the listener is shut down. An error affects one connection only.
            while let Ok((stream, _)) = accepting.accept() {
                let _ = respond(&stream);
            }
        });
        Ok(Self { address, listener, thread: Some(thread) })
    }

    /// Returns the server's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn respond(mut stream: &TcpStream) -> Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    writeln!(stream, "server from {} to {}", stream.peer_addr()?, stream.local_addr()?)?;
    Ok(())
}

/// Sends a request from the node and returns the path of the request.
pub fn connect(node: &Netns, address: SocketAddr) -> Result<Trace> {
    let response = node.visit(|| -> Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        writeln!(stream, "request")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    })?;
    response.and_then(|text| text.parse()).with_context(|| format!("request from the node to {address}"))
}
