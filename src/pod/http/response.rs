//! A pure, incremental, bounded parser of HTTP/1.1 responses.

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

/// Parses `received`; returns none if the response is incomplete. `closed` means that no more bytes will come: a body
/// without a length is then complete.
pub fn parse(received: &[u8], closed: bool, limits: Limits) -> Result<Option<Response>, Error> {
    let Some(head_length) = received.windows(4).position(|window| window == b"\r\n\r\n") else {
        return if received.len() > limits.head { Err(too_large("head", limits.head)) } else { Ok(None) };
    };
    if head_length > limits.head {
        return Err(too_large("head", limits.head));
    }
    let (status, framing) = parse_head(&received[..head_length])?;
    let rest = &received[head_length + 4..];
    let body = match framing {
        Framing::Length(length) if length > limits.body => return Err(too_large("body", limits.body)),
        Framing::Length(length) => rest.get(..length).map(<[u8]>::to_vec),
        Framing::Chunked => decode_chunks(rest, limits.body)?,
        Framing::UntilClose if rest.len() > limits.body => return Err(too_large("body", limits.body)),
        Framing::UntilClose => closed.then(|| rest.to_vec()),
    };
    Ok(body.map(|body| Response { status, body }))
}

fn too_large(part: &'static str, limit: usize) -> Error {
    Error::TooLarge { part, limit }
}

fn parse_head(head: &[u8]) -> Result<(u16, Framing), Error> {
    let head = std::str::from_utf8(head).map_err(|_| Error::Malformed("the head is not text"))?;
    let mut lines = head.split("\r\n");
    let status = parse_status(lines.next().unwrap_or_default())?;
    let mut framing = Framing::UntilClose;
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(Error::Malformed("a header field without colon"))?;
        let found = if name.eq_ignore_ascii_case("content-length") {
            Framing::Length(parse_length(value.trim())?)
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            match value.trim() {
                value if value.eq_ignore_ascii_case("chunked") => Framing::Chunked,
                _ => return Err(Error::Malformed("an unknown transfer encoding")),
            }
        } else {
            continue;
        };
        if !matches!(framing, Framing::UntilClose) {
            return Err(Error::Malformed("more than one length of the body"));
        }
        framing = found;
    }
    Ok((status, if matches!(status, 204 | 304) { Framing::Length(0) } else { framing }))
}

fn parse_status(line: &str) -> Result<u16, Error> {
    let code = line.strip_prefix("HTTP/1.1 ").or_else(|| line.strip_prefix("HTTP/1.0 "));
    let code = code.and_then(|rest| rest.split(' ').next()).filter(|code| code.len() == 3);
    let code = code.and_then(|code| code.parse().ok()).ok_or(Error::Malformed("no status line"))?;
    if (200..600).contains(&code) { Ok(code) } else { Err(Error::Malformed("an interim or unknown status")) }
}

fn parse_length(text: &str) -> Result<usize, Error> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().ok_or(Error::Malformed("a length that is no number"))
}

/// The longest accepted chunk head or trailer line, in bytes.
const LINE: usize = 256;

fn decode_chunks(mut rest: &[u8], limit: usize) -> Result<Option<Vec<u8>>, Error> {
    let mut pieces: Vec<&[u8]> = Vec::new();
    let mut total = 0_usize;
    loop {
        let Some((line, after)) = split_line(rest)? else { return Ok(None) };
        let size = parse_chunk_size(line)?;
        rest = after;
        if size == 0 {
            return Ok(skip_trailers(rest)?.then(|| pieces.concat()));
        }
        total = total.saturating_add(size);
        if total > limit {
            return Err(too_large("body", limit));
        }
        let Some((piece, after)) = rest.split_at_checked(size) else { return Ok(None) };
        pieces.push(piece);
        match after {
            [b'\r', b'\n', after @ ..] => rest = after,
            [] | [b'\r'] => return Ok(None),
            _ => return Err(Error::Malformed("a chunk that is longer than it says")),
        }
    }
}

fn parse_chunk_size(line: &[u8]) -> Result<usize, Error> {
    let size = line.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    let digits = !size.is_empty() && size.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(size).ok().filter(|_| digits);
    text.and_then(|text| usize::from_str_radix(text, 16).ok()).ok_or(Error::Malformed("a chunk without size"))
}

/// Whether the empty line after the trailers has been received.
fn skip_trailers(mut rest: &[u8]) -> Result<bool, Error> {
    for _ in 0..32 {
        match split_line(rest)? {
            None => return Ok(false),
            Some((b"", _)) => return Ok(true),
            Some((_, after)) => rest = after,
        }
    }
    Err(Error::Malformed("too many trailer fields"))
}

/// A line and the bytes after it.
type Line<'a> = (&'a [u8], &'a [u8]);

fn split_line(bytes: &[u8]) -> Result<Option<Line<'_>>, Error> {
    let window = &bytes[..bytes.len().min(LINE + 2)];
    match window.windows(2).position(|pair| pair == b"\r\n") {
        Some(end) => Ok(Some((&bytes[..end], &bytes[end + 2..]))),
        None if bytes.len() > LINE + 1 => Err(Error::Malformed("a line of the chunked coding is too long")),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests;
