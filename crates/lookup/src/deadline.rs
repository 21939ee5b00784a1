//! Deadlines, and streams with a deadline: each read and write is limited to the remaining time, so that a peer that
//! sends single bytes cannot prolong a lookup.
#![expect(clippy::disallowed_methods, reason = "this file owns the clock and the pauses of the pod room")]

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Self {
        Self(Instant::now() + limit)
    }

    /// Returns the deadline, or `grace` from now if that is later.
    pub(crate) fn no_earlier_than(self, grace: Duration) -> Self {
        Self(self.0.max(Instant::now() + grace))
    }

    /// Returns the remaining time, or `TimedOut` if none remains.
    pub(crate) fn left(self) -> io::Result<Duration> {
        let left = self.0.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// Sleeps before the next attempt at a server that has failed, because there is no event to wait for.
pub(crate) fn pause(length: Duration) {
    std::thread::sleep(length);
}

/// A socket with time limits on its blocking calls.
pub(crate) trait Limited {
    fn limit_reads(&self, limit: Duration) -> io::Result<()>;
    fn limit_writes(&self, limit: Duration) -> io::Result<()>;
}

impl Limited for UnixStream {
    fn limit_reads(&self, limit: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(limit))
    }
    fn limit_writes(&self, limit: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(limit))
    }
}

impl Limited for TcpStream {
    fn limit_reads(&self, limit: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(limit))
    }
    fn limit_writes(&self, limit: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(limit))
    }
}

/// A stream with a deadline for all reads and writes.
#[derive(Debug)]
pub(crate) struct Timed<S> {
    pub(crate) stream: S,
    pub(crate) deadline: Deadline,
}

impl<S: Limited + Read> Read for Timed<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.limit_reads(self.deadline.left()?)?;
        self.stream.read(buffer).map_err(timed_out)
    }
}

impl<S: Limited + Write> Write for Timed<S> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.limit_writes(self.deadline.left()?)?;
        self.stream.write(buffer).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Maps EAGAIN, with which the kernel reports a socket's timeout, to `TimedOut`.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}
