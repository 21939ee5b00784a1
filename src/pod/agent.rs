//! Asks the node's agent for a pod's facts, over its Unix socket: one connection, one write, usually one read.
//!
//! `GET /pod?namespace=…&name=…&uid=…` → 200 with [`PodFacts`], 404 where the agent knows no such pod.
//! This is the way of every ADD; whatever goes wrong here leaves the API server.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt};
use nix::sys::time::TimeVal;

use super::deadline::{Deadline, Timed};
use super::http::{self, Limits};
use super::{PodFacts, PodName};

/// The most that an agent may answer: annotations of 256 KiB take six times as much where JSON has to escape each byte, and
/// the sidecar's environment comes on top.
pub const LIMITS: Limits = Limits { head: 8 << 10, body: 4 << 20 };

/// The least time to read an answer in.
const GRACE: Duration = Duration::from_millis(50);

/// What the agent says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It knows the pod.
    Known(PodFacts),
    /// It does not.
    Unknown,
}

/// Why the agent says nothing that can be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens: the agent is not installed, or is being replaced.
    #[error("no agent listens on {path}: {error}")]
    Absent {
        /// The socket.
        path: PathBuf,
        /// `ENOENT` or `ECONNREFUSED`.
        error: Errno,
    },
    /// Somebody may be there, but cannot be reached.
    #[error("cannot connect to the agent on {path}: {error}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the kernel says; `EAGAIN`: the agent accepts no connections in time.
        error: Errno,
    },
    /// The exchange failed: slow, oversized, broken off or no HTTP.
    #[error("the agent on {path}: {error}")]
    Exchange {
        /// The socket.
        path: PathBuf,
        /// How.
        error: http::Error,
    },
    /// The agent answers with a failure of its own.
    #[error("the agent on {path} answers {status}: {message}")]
    Status {
        /// The socket.
        path: PathBuf,
        /// 503 where its cache is not filled yet.
        status: u16,
        /// The start of what it says.
        message: String,
    },
    /// The agent answers something else than facts.
    #[error("the agent on {path} answers no pod facts: {error}")]
    Facts {
        /// The socket.
        path: PathBuf,
        /// What the decoder says.
        error: serde_json::Error,
    },
}

/// A question that is on its way.
#[derive(Debug)]
pub struct Asked {
    path: PathBuf,
    stream: Timed<UnixStream>,
}

/// Asks for a pod; `uid` lets the agent tell a pod from its namesake. Question and answer take at most `limit`,
/// connecting included.
pub fn ask(path: &Path, pod: &PodName, uid: Option<&str>, limit: Duration) -> Result<Asked, Error> {
    let deadline = Deadline::after(limit);
    let mut stream = Timed { stream: connect_to(path, limit)?, deadline };
    let request = http::get(&target(pod, uid), "agent", "");
    let path = path.to_owned();
    match http::send(&mut stream, request.as_bytes()) {
        Ok(()) => Ok(Asked { path, stream }),
        Err(error) => Err(Error::Exchange { path, error }),
    }
}

impl Asked {
    /// Waits for the answer; one that has arrived is read even if the asker comes late for it. The connection is there already, so it may be read in any netns.
    pub fn answer(self) -> Result<Answer, Error> {
        let Self { path, mut stream } = self;
        stream.deadline = stream.deadline.not_within(GRACE);
        let response = match http::receive(&mut stream, LIMITS) {
            Ok(response) => response,
            Err(error) => return Err(Error::Exchange { path, error }),
        };
        match response.status {
            200 => {
                serde_json::from_slice(&response.body).map(Answer::Known).map_err(|error| Error::Facts { path, error })
            }
            404 => Ok(Answer::Unknown),
            status => Err(Error::Status { path, status, message: http::excerpt(&response.body) }),
        }
    }
}

/// Whether somebody takes connections there within `limit`.
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

fn target(pod: &PodName, uid: Option<&str>) -> String {
    let mut target = format!("/pod?namespace={}&name={}", http::encode(&pod.namespace), http::encode(&pod.name));
    if let Some(uid) = uid {
        target.push_str("&uid=");
        target.push_str(&http::encode(uid));
    }
    target
}

/// Connects within a time: a full backlog would block the standard library's `connect` for ever, while the kernel
/// lets a send timeout end it (`unix_stream_connect`). The timeout holds for writes to the stream, too.
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
    fn an_answer_that_has_arrived_is_read_after_the_deadline() {
        let (mut agent, stream) = UnixStream::pair().unwrap();
        agent.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").unwrap();
        let stream = Timed { stream, deadline: Deadline::after(Duration::ZERO) };
        assert_eq!(Asked { path: "/run/x".into(), stream }.answer().unwrap(), Answer::Unknown);
    }

    #[test]
    fn an_answer_that_has_not_arrived_is_not_waited_for_after_the_deadline() {
        let (_agent, stream) = UnixStream::pair().unwrap();
        let stream = Timed { stream, deadline: Deadline::after(Duration::ZERO) };
        let error = Asked { path: "/run/x".into(), stream }.answer().unwrap_err();
        assert!(matches!(error, Error::Exchange { error: http::Error::TimedOut, .. }), "{error}");
    }
}
