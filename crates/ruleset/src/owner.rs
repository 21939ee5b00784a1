//! Users and groups that own sockets.

use std::fmt;

/// A user or group: an id, or a name that must be resolved on this machine before the kernel can use it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Owner {
    Id(u32),
    /// A name from `/etc/passwd` or `/etc/group`.
    Name(String),
}

impl Owner {
    /// Parses an id, or a name of at most 32 letters, digits, `_`, `.`, `-` that starts with a letter or `_`; returns `None`
    /// for any other string.
    pub fn new(text: &str) -> Option<Self> {
        if let Ok(id) = text.parse::<u32>() {
            return Some(Self::Id(id));
        }
        let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        let starts = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        (starts && text.len() <= 32 && text.bytes().all(ok)).then(|| Self::Name(text.to_owned()))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_be_an_option() {
        assert_eq!(Owner::new("java_1.8"), Some(Owner::Name("java_1.8".to_owned())));
        for text in ["-j", "a b", "a\n", "4294967296", "", ".", "a,b"] {
            assert_eq!(Owner::new(text), None);
        }
    }
}
