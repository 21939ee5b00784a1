//! The world outside the pods: a server at an address that only the node has, and questions from the node.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::socket::{Shutdown, shutdown};

use super::netns::Netns;
use super::trace::Trace;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server that says who has reached it, until it is dropped.
#[derive(Debug)]
pub struct Outside {
    address: SocketAddr,
    listener: TcpListener,
    thread: Option<JoinHandle<()>>,
}

impl Outside {
    /// Serves at an address, which the node's loopback interface gets for it.
    pub fn start(node: &Netns, address: SocketAddr) -> Result<Self> {
        let (length, nodad): (_, &[&str]) = if address.is_ipv4() { (32, &[]) } else { (128, &["nodad"]) };
        let cidr = format!("{}/{length}", address.ip());
        node.command("ip", &[["address", "replace", &cidr, "dev", "lo"].as_slice(), nodad].concat())?;
        let listener = node.visit(|| TcpListener::bind(address))?.with_context(|| address.to_string())?;
        let accepting = listener.try_clone()?;
        let thread = std::thread::spawn(move || {
            // Ends when the listener is shut down. One caller's fault is not the next one's.
            while let Ok((stream, _)) = accepting.accept() {
                let _ = answer(&stream);
            }
        });
        Ok(Self { address, listener, thread: Some(thread) })
    }

    /// Where it serves.
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

fn answer(mut stream: &TcpStream) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut question = String::new();
    BufReader::new(stream).read_line(&mut question)?;
    writeln!(stream, "server from {} to {}", stream.peer_addr()?, stream.local_addr()?)?;
    Ok(())
}

/// Asks somebody from the node.
pub fn ask(node: &Netns, whom: SocketAddr) -> Result<Trace> {
    let answer = node.visit(|| -> Result<String> {
        let mut stream = TcpStream::connect_timeout(&whom, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        writeln!(stream, "who is there?")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    })?;
    answer.and_then(|text| text.parse()).with_context(|| format!("asking {whom} from the node"))
}
