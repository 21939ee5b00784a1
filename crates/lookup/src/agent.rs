//! The client of the node's agent: requests a pod's [`PodFacts`] over the agent's Unix socket.
//!
//! `GET /pod?namespace=…&name=…&uid=…` → 200 with [`PodFacts`], or 404 if the agent's cache has no such pod. Every ADD
//! takes this path: one connection, one write, usually one read. After any failure here the plugin queries the API
//! server.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt};
use nix::sys::time::TimeVal;
use podfacts::{PodFacts, PodName, requests};

use super::deadline::{Deadline, Timed};
use super::http::{self, Limits};

/// Size limits of the agent's response: annotations of up to 256 KiB, expanded sixfold if JSON escapes each byte, and
/// the sidecar's environment.
pub const LIMITS: Limits = Limits { head: 8 << 10, body: 4 << 20 };

/// The minimum time for reading a response, from the start of the read: the caller may start it after the request's
/// time limit, and a response that has arrived by then must still be read.
const GRACE: Duration = Duration::from_millis(50);

/// The agent's response to a request for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    Known(Box<PodFacts>),
    Unknown,
}

/// Why the agent gave no usable response.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No process listens: the agent is not installed, or is being replaced.
    #[error("no agent listens on {path}: {error}")]
    Absent {
        path: PathBuf,
        /// `ENOENT` or `ECONNREFUSED`.
        error: Errno,
    },
    /// A process may listen, but the connection failed.
    #[error("cannot connect to the agent on {path}: {error}")]
    Connect { path: PathBuf, error: Errno },
    /// The exchange failed: too slow, too large, interrupted, or not HTTP.
    #[error("the agent on {path}: {error}")]
    Exchange { path: PathBuf, error: http::Error },
    /// The agent responded with a failure.
    #[error("the agent on {path} responds with {status}: {message}")]
    Status {
        path: PathBuf,
        /// 503 until the agent's cache is filled.
        status: u16,
        /// The start of the body.
        message: String,
    },
    /// The body is not the description of a pod in JSON.
    #[error("the response of the agent on {path} does not describe the pod: {error}")]
    Facts { path: PathBuf, error: serde_json::Error },
}

/// A request whose response has not been read.
#[derive(Debug)]
pub struct Pending {
    path: PathBuf,
    stream: Timed<UnixStream>,
}

/// Requests a pod's [`PodFacts`]; `uid` excludes another pod of the same name. Connecting and sending take at most
/// `limit`, whose end is also the deadline of [`Pending::response`].
pub fn request(path: &Path, pod: &PodName, uid: Option<&str>, limit: Duration) -> Result<Pending, Error> {
    send(path, &requests::pod(pod, uid), limit)
}

/// Returns the response to `GET target`, whatever its status. Connecting, request and response together take at most
/// `limit`, or up to 50 ms longer if little of it remains for the response.
pub fn get(path: &Path, target: &str, limit: Duration) -> Result<http::Response, Error> {
    send(path, target, limit)?.receive().map(|(_, response)| response)
}

fn send(path: &Path, target: &str, limit: Duration) -> Result<Pending, Error> {
    let deadline = Deadline::after(limit);
    let mut stream = Timed { stream: connect_to(path, limit)?, deadline };
    let request = http::get(target, "agent", "");
    let path = path.to_owned();
    match http::send(&mut stream, request.as_bytes()) {
        Ok(()) => Ok(Pending { path, stream }),
        Err(error) => Err(Error::Exchange { path, error }),
    }
}

impl Pending {
    /// Waits for the response until the deadline, and at least 50 ms, so that a response that has already arrived is
    /// read. Uses only the open connection, so the thread may be in any netns.
    pub fn response(self) -> Result<Response, Error> {
        let (path, response) = self.receive()?;
        match response.status {
            200 => serde_json::from_slice(&response.body)
                .map(|facts| Response::Known(Box::new(facts)))
                .map_err(|error| Error::Facts { path, error }),
            404 => Ok(Response::Unknown),
            status => Err(Error::Status { path, status, message: http::excerpt(&response.body) }),
        }
    }

    fn receive(self) -> Result<(PathBuf, http::Response), Error> {
        let Self { path, mut stream } = self;
        stream.deadline = stream.deadline.no_earlier_than(GRACE);
        match http::receive(&mut stream, LIMITS) {
            Ok(response) => Ok((path, response)),
            Err(error) => Err(Error::Exchange { path, error }),
        }
    }
}

/// Checks that a process accepts connections on the socket, within `limit`.
pub fn listens(path: &Path, limit: Duration) -> Result<(), Error> {
    connect_to(path, limit).map(drop)
}

fn connect_to(path: &Path, limit: Duration) -> Result<UnixStream, Error> {
    dial(path, limit).map_err(|error| match error {
        Errno::ENOENT | Errno::ECONNREFUSED => Error::Absent { path: path.to_owned(), error },
        Errno::EAGAIN => Error::Exchange { path: path.to_owned(), error: http::Error::TimedOut },
        error => Error::Connect { path: path.to_owned(), error },
    })
}

/// Connects within `limit`. If the backlog is full, the standard library's `connect` blocks without limit; here a send
/// timeout ends it (`unix_stream_connect` in the kernel). The timeout also applies to later writes.
pub fn dial(path: &Path, limit: Duration) -> Result<UnixStream, Errno> {
    let address = UnixAddr::new(path)?;
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let seconds = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
    let limit = TimeVal::new(seconds, i64::from(limit.subsec_micros().max(1)));
    setsockopt(&socket, sockopt::SendTimeout, &limit)?;
    loop {
        match connect(socket.as_raw_fd(), &address) {
            Ok(()) => return Ok(socket.into()),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_response_that_has_arrived_is_read_after_the_deadline() {
        let (mut agent, stream) = UnixStream::pair().unwrap();
        agent.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").unwrap();
        let stream = Timed { stream, deadline: Deadline::after(Duration::ZERO) };
        assert_eq!(Pending { path: "/run/x".into(), stream }.response().unwrap(), Response::Unknown);
    }

    #[test]
    fn after_the_deadline_no_response_is_waited_for() {
        let (_agent, stream) = UnixStream::pair().unwrap();
        let stream = Timed { stream, deadline: Deadline::after(Duration::ZERO) };
        let error = Pending { path: "/run/x".into(), stream }.response().unwrap_err();
        assert!(matches!(error, Error::Exchange { error: http::Error::TimedOut, .. }), "{error}");
    }
}
