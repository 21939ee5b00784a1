//! Versions of the CNI specification.

use std::fmt;

use super::Error;

/// A supported version of the specification, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Also the meaning of a configuration without `cniVersion`.
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

    /// Parses a configuration's `cniVersion`; an empty one means 0.1.0. Unknown versions are [`Error::Version`].
    pub fn of_config(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Ok(Self::V0_1_0);
        }
        Self::find(text).ok_or_else(|| Error::Version(error_excerpt(text)))
    }

    pub(super) fn find(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The start of a foreign value for an error message, limited because logs and events repeat it.
pub(super) fn error_excerpt(text: &str) -> String {
    text.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_found_by_its_text() {
        for version in Version::ALL {
            assert_eq!(Version::of_config(version.as_str()).unwrap(), version);
        }
    }

    #[test]
    fn a_missing_version_means_0_1_0() {
        assert_eq!(Version::of_config("").unwrap(), Version::V0_1_0);
    }

    #[test]
    fn an_unknown_version_is_reported_with_the_supported_ones() {
        let error = Version::of_config("0.9.9").unwrap_err();
        assert_eq!(error.code().number(), 1);
        assert_eq!(
            error.details(),
            r#"config is "0.9.9", plugin supports ["0.1.0" "0.2.0" "0.3.0" "0.3.1" "0.4.0" "1.0.0" "1.1.0"]"#
        );
    }

    #[test]
    fn versions_are_ordered_by_age() {
        assert!(Version::ALL.is_sorted());
        assert_eq!(Version::ALL.last(), Some(&Version::NEWEST));
    }
}
