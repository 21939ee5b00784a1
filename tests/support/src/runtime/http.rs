//! The part of HTTP that the doubles of API server and agent need.

use std::io::{BufRead, BufReader, Read, Write};

use anyhow::{Context as _, Result};

/// The part of a request that the doubles use.
#[derive(Debug, Default)]
pub(super) struct Request {
    /// Method and target: `GET /pod?namespace=shop&name=web-0`.
    pub line: String,
    /// The header `Authorization`.
    pub authorization: Option<String>,
}

impl Request {
    /// Reads the head of a request; the plugin's requests have no body.
    pub(super) fn read(stream: impl Read) -> Result<Self> {
        let mut lines = BufReader::new(stream).lines();
        let first = lines.next().context("no request")??;
        let line = first.strip_suffix(" HTTP/1.1").context("not HTTP/1.1")?.to_owned();
        let mut request = Self { line, authorization: None };
        for header in lines {
            let header = header?;
            if header.is_empty() {
                break;
            }
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("authorization")
            {
                request.authorization = Some(value.trim().to_owned());
            }
        }
        Ok(request)
    }

    /// Returns the target of a GET request.
    pub(super) fn target(&self) -> Option<&str> {
        self.line.strip_prefix("GET ")
    }
}

/// Sends a JSON response, after which the connection is closed.
pub(super) fn respond(mut stream: impl Write, status: &str, body: &str) -> Result<()> {
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    Ok(stream.flush()?)
}
