//! Names of network interfaces.

use std::fmt;

use super::Error;

/// A validated interface name: a letter, then up to 14 letters, digits, `_`, `.` and `-`. It cannot be mistaken for an
/// option or another part of a command line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Interface(String);

impl Interface {
    pub fn lo() -> Self {
        Self("lo".to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses one name.
    pub fn parse(key: &str, text: &str) -> Result<Self, Error> {
        let mut bytes = text.bytes();
        let first = bytes.next().is_some_and(|b| b.is_ascii_alphabetic());
        let rest = bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
        if first && rest && text.len() <= 15 {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::new(
            key,
            text,
            "a comma-separated list of interface names: a letter, then up to 14 letters, digits, `_`, `.` or `-`",
        ))
    }

    /// Parses a comma-separated list; empty text is an empty list, an empty element an error (Istio #58781).
    pub fn parse_list(key: &str, text: &str) -> Result<Vec<Self>, Error> {
        if text.trim().is_empty() {
            return Ok(Vec::new());
        }
        text.split(',').map(|p| Self::parse(key, p.trim())).collect()
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
