//! How a kernel's rules differ from what is wanted, as sentences for people.

use std::borrow::Cow;
use std::fmt;

use super::describe;
use super::image::TableId;

/// One difference; prints as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    table: TableId,
    /// One of ours is not copied: in a fresh netns all chains are missing, and nobody asks for the sentences.
    chain: Cow<'static, str>,
    wrong: Wrong,
}

impl Mismatch {
    pub(super) fn new(table: TableId, chain: impl Into<Cow<'static, str>>, wrong: Wrong) -> Self {
        Self { table, chain: chain.into(), wrong }
    }
}

/// What is wrong in a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// The kernel skips the table.
    Dormant,
    /// The table is Istio's, and not wanted.
    UnwantedTable,
    /// The chain is not there.
    NoChain,
    /// The chain is one of ours, and not wanted.
    Leftover,
    /// The chain is not called where it should be.
    Hook {
        /// Where it should be called.
        wanted: String,
        /// Where it is.
        found: String,
    },
    /// A rule is not at its place.
    Missing {
        /// Its place, the first being 1, among our rules of the chain.
        place: usize,
        /// The rule, as `iptables-save` prints it.
        rule: String,
        /// What is at its place.
        instead: Option<String>,
    },
    /// A rule that is not wanted.
    Unwanted {
        /// Its place in the chain, the first being 1.
        place: usize,
        /// The rule.
        rule: String,
    },
    /// A rule of someone else's, by which packets pass Istio's jump by.
    Bypass {
        /// Its place in the chain, the first being 1.
        place: usize,
        /// The rule.
        rule: String,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, chain, wrong } = self;
        let table = describe::table(*table);
        match wrong {
            Wrong::Dormant => write!(f, "{table} is dormant"),
            Wrong::UnwantedTable => write!(f, "{table} is not wanted"),
            Wrong::NoChain => write!(f, "{table} has no chain {chain}"),
            Wrong::Leftover => write!(f, "{table} has a chain {chain} that is not wanted"),
            Wrong::Hook { wanted, found } => {
                write!(f, "chain {chain} of {table} should be called as {wanted}, and is called as {found}")
            }
            Wrong::Missing { place, rule, instead: Some(instead) } => {
                write!(f, "chain {chain} of {table} should have rule {place} `{rule}`, and has `{instead}`")
            }
            Wrong::Missing { place, rule, instead: None } => {
                write!(f, "chain {chain} of {table} should have rule {place} `{rule}`, and has it not there")
            }
            Wrong::Unwanted { place, rule } => {
                write!(f, "chain {chain} of {table} has rule {place} `{rule}`, which is not wanted")
            }
            Wrong::Bypass { place, rule } => write!(
                f,
                "chain {chain} of {table} has rule {place} `{rule}` before Istio's jump: what it matches is not redirected"
            ),
        }
    }
}
