//! Versions of the CNI specification.

use std::fmt;

/// A supported version of the specification. Older versions are less than newer ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Version 0.1.0, which is also the version of a configuration without `cniVersion`.
    V0_1_0,
    V0_2_0,
    V0_3_0,
    V0_3_1,
    /// Adds CHECK, and prevResult on DEL.
    V0_4_0,
    V1_0_0,
    /// Adds GC and STATUS.
    V1_1_0,
}

impl Version {
    /// All versions, in the order in which VERSION lists them.
    pub const ALL: [Self; 7] =
        [Self::V0_1_0, Self::V0_2_0, Self::V0_3_0, Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];
    pub const NEWEST: Self = Self::V1_1_0;

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// Parses a version such as `1.0.0`; returns `None` if it is not supported.
    pub fn find(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_found_by_its_text() {
        for version in Version::ALL {
            assert_eq!(Version::find(version.as_str()), Some(version));
        }
    }

    #[test]
    fn versions_are_ordered_by_age() {
        assert!(Version::ALL.is_sorted());
        assert_eq!(Version::ALL.last(), Some(&Version::NEWEST));
    }
}
