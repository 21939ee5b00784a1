//! An HTTP/1.1 client for one exchange per connection, shared by the agent's and the API server's clients. The stream's
//! deadline bounds its time, [`Limits`] its memory.

use std::io::{self, Read, Write};

mod response;

pub use response::{Response, parse};

/// Size limits of a response, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Limit of status line and header fields.
    pub head: usize,
    /// Limit of the decoded content.
    pub body: usize,
}

/// Why there is no usable response.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no complete response within the time limit")]
    TimedOut,
    /// The peer closed the connection before the response was complete.
    #[error("connection closed after {received} bytes of a response")]
    Closed {
        /// The number of bytes received before the close.
        received: usize,
    },
    #[error("the response's {part} is larger than {limit} bytes")]
    TooLarge {
        /// `head`, `body` or `trailer`.
        part: &'static str,
        /// The limit in bytes.
        limit: usize,
    },
    /// The response is not HTTP, or not a valid response to the request.
    #[error("invalid HTTP/1.1 response: {0}")]
    Malformed(&'static str),
    /// Status line, header fields or trailer fields are not HTTP/1.1.
    #[error("invalid HTTP/1.1 response: {0}")]
    Head(httparse::Error),
    /// The stream failed; TLS failures are inside the `io::Error`.
    #[error("{0}")]
    Io(io::Error),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::TimedOut,
            _ => Self::Io(error),
        }
    }
}

impl From<httparse::Error> for Error {
    fn from(error: httparse::Error) -> Self {
        Self::Head(error)
    }
}

/// Whether the error means that the peer closed the connection.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Sends one request and reads the complete response.
pub(crate) fn exchange(stream: &mut (impl Read + Write), request: &[u8], limits: Limits) -> Result<Response, Error> {
    send(stream, request)?;
    receive(stream, limits)
}

pub(crate) fn send(stream: &mut impl Write, request: &[u8]) -> Result<(), Error> {
    stream
        .write_all(request)
        .and_then(|()| stream.flush())
        .map_err(|error| if is_closed(&error) { Error::Closed { received: 0 } } else { error.into() })
}

/// Reads a complete response. An agent's response usually arrives in one read.
pub(crate) fn receive(stream: &mut impl Read, limits: Limits) -> Result<Response, Error> {
    let mut received = Vec::new();
    // An agent's response has about 1 KiB; a larger buffer would touch unused pages of the stack.
    let mut chunk = [0; 2 << 10];
    loop {
        let count = match stream.read(&mut chunk) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if is_closed(&error) => return Err(Error::Closed { received: received.len() }),
            Err(error) => return Err(error.into()),
        };
        received.extend_from_slice(&chunk[..count]);
        if let Some(response) = parse(&received, count == 0, limits)? {
            return Ok(response);
        }
        if count == 0 {
            return Err(Error::Closed { received: received.len() });
        }
    }
}

/// Formats a GET request with `Connection: close`. `headers` are complete lines.
pub(crate) fn get(target: &str, host: &str, headers: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nAccept: application/json\r\nConnection: close\r\n{headers}\r\n")
}

/// Returns the start of a response body on one line, for an error message.
pub(crate) fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(800)]);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_one_short_line() {
        assert_eq!(excerpt(b" a\r\nb\xff\x1b "), "a  b\u{fffd}");
        assert_eq!(excerpt(&[b'x'; 5000]).len(), 200);
    }
}
