//! A pure, incremental, bounded parser of HTTP/1.1 responses.

use httparse::Status;

use super::{Error, Limits};

/// A complete response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// 200 to 599.
    pub status: u16,
    /// The decoded content.
    pub body: Vec<u8>,
}

/// The framing of a body (RFC 9112, section 6.3).
enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

/// The maximum number of header or trailer fields; a response with more fields is refused.
const FIELDS: usize = 64;

/// Parses `received`; returns `None` if the response is incomplete. `closed`: no more bytes will arrive, so a body
/// without a length is complete.
pub fn parse(received: &[u8], closed: bool, limits: Limits) -> Result<Option<Response>, Error> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut head = httparse::Response::new(&mut fields);
    let length = match head.parse(received)? {
        Status::Complete(length) if length <= limits.head => length,
        Status::Partial if received.len() <= limits.head => return Ok(None),
        _ => return Err(too_large("head", limits.head)),
    };
    let status = head.code.filter(|code| (200..600).contains(code));
    let status = status.ok_or(Error::Malformed("an interim or unknown status"))?;
    let framing = if matches!(status, 204 | 304) { Framing::Length(0) } else { framing(head.headers)? };
    let rest = &received[length..];
    let body = match framing {
        Framing::Length(length) if length > limits.body => return Err(too_large("body", limits.body)),
        Framing::Length(length) => rest.get(..length).map(<[u8]>::to_vec),
        Framing::Chunked => decode_chunks(rest, limits)?,
        Framing::UntilClose if rest.len() > limits.body => return Err(too_large("body", limits.body)),
        Framing::UntilClose => closed.then(|| rest.to_vec()),
    };
    Ok(body.map(|body| Response { status, body }))
}

fn too_large(part: &'static str, limit: usize) -> Error {
    Error::TooLarge { part, limit }
}

fn framing(fields: &[httparse::Header<'_>]) -> Result<Framing, Error> {
    let mut framing = Framing::UntilClose;
    for field in fields {
        let value = field.value.trim_ascii();
        let found = if field.name.eq_ignore_ascii_case("content-length") {
            Framing::Length(parse_length(value)?)
        } else if !field.name.eq_ignore_ascii_case("transfer-encoding") {
            continue;
        } else if value.eq_ignore_ascii_case(b"chunked") {
            Framing::Chunked
        } else {
            return Err(Error::Malformed("an unknown transfer encoding"));
        };
        if !matches!(framing, Framing::UntilClose) {
            return Err(Error::Malformed("more than one length of the body"));
        }
        framing = found;
    }
    Ok(framing)
}

fn parse_length(value: &[u8]) -> Result<usize, Error> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| digits);
    text.and_then(|text| text.parse().ok()).ok_or(Error::Malformed("a Content-Length that is not a number"))
}

/// The maximum length of the line with a chunk's size, in bytes; a response with a longer line is refused.
const LINE: usize = 256;

fn decode_chunks(mut rest: &[u8], limits: Limits) -> Result<Option<Vec<u8>>, Error> {
    let mut pieces: Vec<&[u8]> = Vec::new();
    let mut total = 0_usize;
    loop {
        let line = &rest[..rest.len().min(LINE)];
        let size = match httparse::parse_chunk_size(line).map_err(|_| Error::Malformed("a chunk without size"))? {
            Status::Complete((length, size)) => {
                rest = &rest[length..];
                usize::try_from(size).unwrap_or(usize::MAX)
            }
            Status::Partial if line.len() < LINE => return Ok(None),
            Status::Partial => return Err(Error::Malformed("a line of the chunked coding is too long")),
        };
        if size == 0 {
            return Ok(is_end_of_trailers(rest, limits)?.then(|| pieces.concat()));
        }
        total = total.saturating_add(size);
        if total > limits.body {
            return Err(too_large("body", limits.body));
        }
        let Some((piece, after)) = rest.split_at_checked(size) else { return Ok(None) };
        pieces.push(piece);
        match after {
            [b'\r', b'\n', after @ ..] => rest = after,
            [] | [b'\r'] => return Ok(None),
            _ => return Err(Error::Malformed("a chunk that is longer than its size")),
        }
    }
}

/// Whether the empty line after the trailers has been received.
fn is_end_of_trailers(rest: &[u8], limits: Limits) -> Result<bool, Error> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    match httparse::parse_headers(rest, &mut fields)? {
        Status::Complete(_) => Ok(true),
        Status::Partial if rest.len() > limits.head => Err(too_large("trailer", limits.head)),
        Status::Partial => Ok(false),
    }
}

#[cfg(test)]
mod tests;
