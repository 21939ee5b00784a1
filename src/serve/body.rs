//! Bodies of requests, read within limits of size, time and memory.
//!
//! `http` calls it for each request. What is kept of a body is reserved in the [`Memory`] that all connections share.

use std::pin::{Pin, pin};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::StatusCode;
use hyper::body::{Body, Bytes};
use tokio::time::timeout;

use super::http::{Limits, Response, busy, text};
use super::memory::{Ended, Memory, Share};

/// How long what is left of a body without memory is read and dropped: a peer that still sends may not see the answer.
const DISCARD: Duration = Duration::from_millis(500);

/// Why a request is not handed to its handler, or not answered by it.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The body is too large.
    #[error("a request has at most {0} bytes here")]
    TooLarge(usize),
    /// The body cannot be read: the peer has gone, as a rule.
    #[error("the request cannot be read: {0}")]
    Broken(String),
    /// The peer took too long to send the body.
    #[error("the request's body did not come within {} ms", .0.as_millis())]
    Slow(Duration),
    /// The bodies of other requests have the memory.
    #[error("the memory for requests is exhausted; ask again")]
    Memory,
    /// The answer took too long.
    #[error("the request took longer than {} ms", .0.as_millis())]
    Late(Duration),
}

impl Refusal {
    /// The same in a word, such as a label of metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::TooLarge(_) => "too_large",
            Self::Broken(_) => "broken",
            Self::Slow(_) => "slow",
            Self::Memory => "memory",
            Self::Late(_) => "late",
        }
    }

    /// The answer to the request.
    pub(super) fn answer(&self) -> Response {
        let status = match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Broken(_) => StatusCode::BAD_REQUEST,
            Self::Slow(_) | Self::Late(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Memory => return busy(format!("{self}\n")),
        };
        text(status, format!("{self}\n"))
    }
}

/// The bytes of a body with their reservation, which ends with the last clone of the [`Bytes`] that own both.
struct Kept {
    bytes: Vec<u8>,
    share: Share,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The whole body.
///
/// # Errors
/// It is too large, comes too slowly or not to its end, or there is no memory for it.
pub(super) async fn read<B>(body: B, limits: &Limits, memory: &Memory) -> Result<Bytes, Refusal>
where
    B: Body<Data = Bytes, Error = hyper::Error>,
{
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let mut body = pin!(body);
    let mut kept = Kept { bytes: Vec::new(), share: memory.share() };
    let read = kept.fill(body.as_mut(), limits).await;
    match read {
        Ok(()) => Ok(Bytes::from_owner(kept)),
        Err(Stop::Refused(refusal)) => Err(refusal),
        Err(Stop::Ended(Ended::Late)) => Err(Refusal::Slow(limits.read)),
        Err(Stop::Ended(Ended::GivenUp)) => Err(Refusal::Memory),
        Err(Stop::Ended(Ended::Exhausted)) => {
            drop(kept);
            let discard = async { while let Some(Ok(_)) = body.frame().await {} };
            let _ = timeout(DISCARD, discard).await;
            Err(Refusal::Memory)
        }
    }
}

enum Stop {
    Refused(Refusal),
    Ended(Ended),
}

impl From<Ended> for Stop {
    fn from(ended: Ended) -> Self {
        Self::Ended(ended)
    }
}

impl Kept {
    async fn fill<B>(&mut self, mut body: Pin<&mut B>, limits: &Limits) -> Result<(), Stop>
    where
        B: Body<Data = Bytes, Error = hyper::Error>,
    {
        while let Some(frame) = self.share.next(body.frame(), limits.read).await? {
            let frame = frame.map_err(|error| Stop::Refused(Refusal::Broken(error.to_string())))?;
            let Ok(part) = frame.into_data() else { continue };
            let length = self.bytes.len() + part.len();
            if length > limits.body {
                return Err(Stop::Refused(Refusal::TooLarge(limits.body)));
            }
            let announced = body.size_hint().upper().and_then(|rest| usize::try_from(rest).ok());
            let capacity = capacity(self.bytes.capacity(), length, announced, limits.body);
            self.share.grow_to(capacity).await?;
            self.bytes.reserve_exact(capacity - self.bytes.len());
            self.bytes.extend_from_slice(&part);
        }
        self.share.finish();
        Ok(())
    }
}

/// Bytes to reserve for a body of which `length` have come and at most `rest` more will, where so many are reserved: twice as
/// many if they do not suffice, so that parts are seldom copied, and no more than the body can have.
fn capacity(reserved: usize, length: usize, rest: Option<usize>, largest: usize) -> usize {
    if length <= reserved {
        return reserved;
    }
    let whole = rest.map_or(largest, |rest| length.saturating_add(rest).min(largest));
    length.max(reserved.saturating_mul(2).min(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_reserved_as_it_comes_and_never_beyond_its_end() {
        assert_eq!(capacity(0, 1, Some(99), 150), 1, "an announced length reserves nothing");
        assert_eq!(capacity(8, 8, Some(92), 150), 8);
        assert_eq!(capacity(8, 9, Some(91), 150), 16);
        assert_eq!(capacity(64, 65, Some(35), 150), 100);
        assert_eq!(capacity(64, 120, Some(0), 150), 120);
        assert_eq!(capacity(64, 65, None, 150), 128);
        assert_eq!(capacity(128, 129, None, 150), 150, "a body without a length is not larger either");
    }
}
