//! The limits of an HTTP server. `http` and `body` enforce them.

use std::time::Duration;

/// The limits of a server and of each peer.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The size limit of request line and header fields, in bytes; a larger head gets the status 431.
    pub head: usize,
    /// The size limit of a body, in bytes; a larger body gets the status 413.
    pub body: usize,
    /// The size limit of all bodies in memory together, in bytes; each is kept until its response. A request for which
    /// no memory becomes free gets the status 503. A value below `body` has the effect of `body`.
    pub memory: usize,
    /// The maximum number of simultaneous connections; others wait in the kernel's backlog.
    pub connections: usize,
    /// The time limit for a request head: for the first one from the opening of the connection, for later ones from
    /// their first byte.
    pub first: Duration,
    /// The time limit for each later request head, including the idle time since the request before.
    pub idle: Duration,
    /// The limit of the total wait for a peer's body; the status is 408 beyond it. A body for which the server has
    /// waited longer than a quarter of a second is discarded, with the status 503, if other bodies need its memory. Also
    /// the time after which a peer that reads nothing of a response is disconnected.
    pub read: Duration,
    /// The time limit for reading a body and responding; the status is 408 beyond it.
    pub request: Duration,
    /// The age from which a connection is closed after its next response.
    pub connection: Duration,
    /// The time limit for requests in progress after shutdown is requested.
    pub drain: Duration,
}

impl Default for Limits {
    /// Returns limits for requests without a body.
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
