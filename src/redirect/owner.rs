//! Users and groups that own sockets.

use std::fmt;

use super::Error;

/// A user or group, by number or by a name that the machine must resolve before a kernel can take it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Numeric id.
    Id(u32),
    /// A name of `/etc/passwd` or `/etc/group`.
    Name(String),
}

impl Owner {
    /// A number, or a name of letters, digits, `_`, `.`, `-` that does not start with `-`.
    pub fn parse(key: &str, text: &str) -> Result<Self, Error> {
        if let Ok(id) = text.parse::<u32>() {
            return Ok(Self::Id(id));
        }
        let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        let starts = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        if starts && text.len() <= 32 && text.bytes().all(ok) {
            return Ok(Self::Name(text.to_owned()));
        }
        Err(Error::new(key, text, "a comma-separated list of numeric ids or of user or group names"))
    }

    /// A comma-separated list, spaces around elements and empty elements dropped.
    pub fn parse_list(key: &str, text: &str) -> Result<Vec<Self>, Error> {
        text.split(',').map(str::trim).filter(|p| !p.is_empty()).map(|p| Self::parse(key, p)).collect()
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

/// Groups whose outbound traffic is redirected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerGroups {
    /// All but these: `*` and the exclude list.
    AllBut(Vec<Owner>),
    /// Only these; the exclude list is ignored.
    Only(Vec<Owner>),
}

impl OwnerGroups {
    /// The most groups that can be named: they share one rule, which holds so many matches.
    const MOST: usize = 64;

    /// Key and text of the groups that are redirected (`*`, or a list) and of those that are not.
    pub fn parse(include: (&str, &str), exclude: (&str, &str)) -> Result<Self, Error> {
        if include.1.trim() == "*" {
            return Owner::parse_list(exclude.0, exclude.1).map(Self::AllBut);
        }
        let groups = Owner::parse_list(include.0, include.1)?;
        if groups.len() > Self::MOST {
            return Err(Error::new(include.0, include.1, "`*` or at most 64 groups"));
        }
        Ok(Self::Only(groups))
    }
}

impl Default for OwnerGroups {
    fn default() -> Self {
        Self::AllBut(Vec::new())
    }
}
