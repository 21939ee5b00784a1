//! Users and groups that own sockets.

use std::fmt;

use super::Error;

/// A user or group: an id, or a name that must be resolved on this machine before the kernel can use it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Owner {
    Id(u32),
    /// A name of `/etc/passwd` or `/etc/group`.
    Name(String),
}

impl Owner {
    /// Parses an id, or a name of letters, digits, `_`, `.`, `-` that starts with a letter or `_`.
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

    /// Parses a comma-separated list; ignores spaces around elements and empty elements.
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

/// The groups whose outbound traffic is redirected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerGroups {
    /// All groups but these: `*` with the exclude list.
    AllBut(Vec<Owner>),
    /// Only these groups; the exclude list is ignored.
    Only(Vec<Owner>),
}

impl OwnerGroups {
    /// The maximum number of included groups, as in Istio: each is a match of the same rule.
    const MAX: usize = 64;

    /// Parses two pairs of key and text: `include` lists the redirected groups (or is `*`), and `exclude` the groups
    /// that are not redirected.
    pub fn parse(include: (&str, &str), exclude: (&str, &str)) -> Result<Self, Error> {
        if include.1.trim() == "*" {
            return Owner::parse_list(exclude.0, exclude.1).map(Self::AllBut);
        }
        let groups = Owner::parse_list(include.0, include.1)?;
        if groups.len() > Self::MAX {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(include: &str, exclude: &str) -> Result<OwnerGroups, Error> {
        OwnerGroups::parse(("INCLUDE", include), ("EXCLUDE", exclude))
    }

    fn numbers(n: u32) -> String {
        (1..=n).map(|i| i.to_string()).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn at_most_64_groups_are_included_and_any_number_excluded() {
        for n in [63, 64] {
            assert!(matches!(groups(&numbers(n), ""), Ok(OwnerGroups::Only(ids)) if ids.len() == n as usize));
        }
        for n in [65, 100] {
            let error = groups(&numbers(n), "").unwrap_err();
            assert_eq!((&*error.key, error.allowed), ("INCLUDE", "`*` or at most 64 groups"));
        }
        assert!(matches!(groups("*", &numbers(100)), Ok(OwnerGroups::AllBut(ids)) if ids.len() == 100));
    }

    #[test]
    fn an_empty_inclusion_means_no_group_whatever_the_exclusion() {
        assert_eq!(groups("", "888"), Ok(OwnerGroups::Only(Vec::new())));
        assert_eq!(groups("*", ""), Ok(OwnerGroups::default()));
    }

    #[test]
    fn a_name_cannot_be_an_option() {
        assert_eq!(Owner::parse("key", "java_1.8"), Ok(Owner::Name("java_1.8".to_owned())));
        for text in ["-j", "a b", "a\n", "4294967296", "", ".", "a,b"] {
            assert_eq!(Owner::parse("key", text).unwrap_err().value, text);
        }
    }
}
