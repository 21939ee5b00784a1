//! Reads bodies of requests within limits of size, time and memory.
//!
//! `http` calls it for each request. A body's bytes are reserved in the [`Memory`] that all connections share.

use std::pin::{Pin, pin};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::StatusCode;
use hyper::body::{Body, Bytes};
use tokio::time::timeout;

use super::buffer::Buffer;
use super::limits::Limits;
use super::memory::{Ended, Memory, Share};
use super::message::{Response, busy, text};

/// The time for which the remaining body is read and discarded after a refusal for lack of memory. A peer may not read
/// the response before it has sent its whole body.
const DISCARD: Duration = Duration::from_millis(500);

/// Why a request did not reach its handler, or got no response from it.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The body is too large.
    #[error("the request's body has more than {0} bytes")]
    TooLarge(usize),
    /// The body cannot be read, usually because the peer has closed the connection.
    #[error("the request cannot be read: {0}")]
    Broken(String),
    /// The peer took too long to send the body.
    #[error("the request's body was not received within {} ms", .0.as_millis())]
    Slow(Duration),
    /// The bodies of other requests occupy the memory.
    #[error("the memory for requests is exhausted: send the request again")]
    Memory,
    /// The response took too long.
    #[error("the request took longer than {} ms", .0.as_millis())]
    Late(Duration),
}

impl Refusal {
    /// Returns the name in metric labels and logs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::TooLarge(_) => "too_large",
            Self::Broken(_) => "broken",
            Self::Slow(_) => "slow",
            Self::Memory => "memory",
            Self::Late(_) => "late",
        }
    }

    /// Returns the response to the refused request.
    pub(super) fn response(&self) -> Response {
        let status = match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Broken(_) => StatusCode::BAD_REQUEST,
            Self::Slow(_) | Self::Late(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Memory => return busy(format!("{self}\n")),
        };
        text(status, format!("{self}\n"))
    }
}

/// The bytes of a body and their reservation, which ends when the last clone of the owning [`Bytes`] is dropped.
struct ReservedBytes {
    bytes: Buffer,
    share: Share,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// Reads the whole body.
///
/// # Errors
/// The body is too large, too slow or incomplete, or the memory is exhausted.
pub(super) async fn read<B>(body: B, limits: &Limits, memory: &Memory) -> Result<Bytes, Refusal>
where
    B: Body<Data = Bytes, Error = hyper::Error>,
{
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let mut body = pin!(body);
    let mut reserved_bytes = ReservedBytes { bytes: Buffer::new(), share: memory.share() };
    let read = reserved_bytes.fill(body.as_mut(), limits).await;
    match read {
        Ok(()) => Ok(Bytes::from_owner(reserved_bytes)),
        Err(ReadError::Refused(refusal)) => Err(refusal),
        Err(ReadError::Ended(Ended::TimedOut)) => Err(Refusal::Slow(limits.read)),
        Err(ReadError::Ended(Ended::Evicted)) => Err(Refusal::Memory),
        Err(ReadError::Ended(Ended::Exhausted)) => {
            drop(reserved_bytes);
            let discard = async { while let Some(Ok(_)) = body.frame().await {} };
            let _ = timeout(DISCARD, discard).await;
            Err(Refusal::Memory)
        }
    }
}

enum ReadError {
    Refused(Refusal),
    Ended(Ended),
}

impl From<Ended> for ReadError {
    fn from(ended: Ended) -> Self {
        Self::Ended(ended)
    }
}

impl ReservedBytes {
    async fn fill<B>(&mut self, mut body: Pin<&mut B>, limits: &Limits) -> Result<(), ReadError>
    where
        B: Body<Data = Bytes, Error = hyper::Error>,
    {
        let mut reserved = 0;
        while let Some(frame) = self.share.next(body.frame(), limits.read).await? {
            let frame = frame.map_err(|error| ReadError::Refused(Refusal::Broken(error.to_string())))?;
            let Ok(part) = frame.into_data() else { continue };
            let length = self.bytes.len() + part.len();
            if length > limits.body {
                return Err(ReadError::Refused(Refusal::TooLarge(limits.body)));
            }
            let rest = body.size_hint().upper().and_then(|rest| usize::try_from(rest).ok());
            let whole = rest.map_or(limits.body, |rest| length.saturating_add(rest).min(limits.body));
            reserved = reservation(reserved, length, whole);
            self.share.grow_to(reserved).await?;
            self.bytes.append(&part, whole).map_err(|error| {
                tracing::warn!(%error, "the kernel has no memory for a request");
                Ended::Exhausted
            })?;
        }
        self.share.finish();
        Ok(())
    }
}

/// Returns the bytes to reserve for a body of at most `whole` bytes, of which `length` have been received. A reservation
/// that does not suffice is doubled, up to `whole`, so that a body seldom waits for memory.
fn reservation(reserved: usize, length: usize, whole: usize) -> usize {
    if length <= reserved { reserved } else { length.max(reserved.saturating_mul(2).min(whole)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reservation_grows_with_the_received_bytes_up_to_the_bodys_size() {
        assert_eq!(reservation(0, 1, 100), 1, "an announced length reserves nothing");
        assert_eq!(reservation(8, 8, 100), 8);
        assert_eq!(reservation(8, 9, 100), 16);
        assert_eq!(reservation(64, 65, 100), 100);
        assert_eq!(reservation(64, 120, 120), 120);
    }
}
