//! The limits of an HTTP server. `http` and `body` enforce them.

use std::time::Duration;

/// The limits of a server and of each peer.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Request line and header fields, bytes; the status is 431 beyond it.
    pub head: usize,
    /// The body, bytes; the status is 413 beyond it.
    pub body: usize,
    /// Bytes of all requests' bodies that are in memory at once, until their responses; the status is 503 beyond it.
    /// At least one body of the largest size fits.
    pub memory: usize,
    /// The number of simultaneous connections. Further ones wait in the kernel's queue.
    pub connections: usize,
    /// The time limit for a request head: for the first one from the connection on, for later ones from their first
    /// byte.
    pub first: Duration,
    /// The time limit for each further request head, from the end of the request before.
    pub idle: Duration,
    /// The time limit for a body; the status is 408 beyond it. A body that takes longer than a quarter of a second is
    /// discarded, with status 503, if other bodies need its memory. Also the time for which a peer may read nothing of
    /// a response.
    pub read: Duration,
    /// The time limit for reading a body and responding; the status is 408 beyond it.
    pub request: Duration,
    /// The age of a connection after which the next response is the last.
    pub connection: Duration,
    /// The time limit for requests in progress after shutdown is requested.
    pub drain: Duration,
}

impl Default for Limits {
    /// Limits for requests without a body.
    fn default() -> Self {
        Self {
            head: 16 << 10,
            body: 4 << 10,
            memory: 256 << 10,
            connections: 64,
            first: Duration::from_secs(5),
            idle: Duration::from_secs(30),
            read: Duration::from_secs(5),
            request: Duration::from_secs(10),
            connection: Duration::from_secs(300),
            drain: Duration::from_secs(5),
        }
    }
}
