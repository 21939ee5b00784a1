//! Names of network interfaces.

use std::fmt;

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

    /// Returns the name as the kernel holds it, with zero bytes up to `IFNAMSIZ`.
    pub fn padded(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(self.0.bytes()).for_each(|(to, byte)| *to = byte);
        bytes
    }

    /// Checks a name; returns none if it is invalid.
    pub fn new(name: &str) -> Option<Self> {
        let mut bytes = name.bytes();
        let first = bytes.next().is_some_and(|b| b.is_ascii_alphabetic());
        let rest = bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
        (first && rest && name.len() <= 15).then(|| Self(name.to_owned()))
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
