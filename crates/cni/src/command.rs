//! The commands of the CNI protocol (`CNI_COMMAND`), also called verbs.

use std::fmt;

use super::Version;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Add,
    Check,
    Del,
    Gc,
    Status,
    Version,
}

impl Command {
    pub(super) const ALL: [Self; 6] = [Self::Add, Self::Check, Self::Del, Self::Gc, Self::Status, Self::Version];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Check => "CHECK",
            Self::Del => "DEL",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
        }
    }

    /// Returns the first version of the specification that has this verb.
    pub const fn since(self) -> Version {
        match self {
            Self::Add | Self::Del | Self::Version => Version::V0_1_0,
            Self::Check => Version::V0_4_0,
            Self::Gc | Self::Status => Version::V1_1_0,
        }
    }

    /// Returns the required variables other than `CNI_COMMAND`, in the order in which errors list them.
    pub(super) const fn required(self) -> &'static [&'static str] {
        match self {
            Self::Add | Self::Check => &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"],
            Self::Del => &["CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"],
            Self::Gc | Self::Status => &["CNI_PATH"],
            Self::Version => &[],
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
