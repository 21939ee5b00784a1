//! Differences between observed and desired rules, formatted as sentences.

use std::borrow::Cow;
use std::fmt;

use super::describe;
use super::image::TableId;

/// A difference in a table or in a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    table: TableId,
    /// The chain's name; empty for the table itself. The name of a desired chain is borrowed, to save an allocation: in a
    /// fresh netns each desired chain is a difference that is never printed.
    chain: Cow<'static, str>,
    kind: DifferenceKind,
}

impl Difference {
    pub(super) fn new(table: TableId, chain: impl Into<Cow<'static, str>>, kind: DifferenceKind) -> Self {
        Self { table, chain: chain.into(), kind }
    }
}

/// How the observed rules differ from the desired ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The kernel skips the table.
    Dormant,
    /// An own table exists, although it is not desired.
    UnwantedTable,
    /// A chain is missing.
    NoChain,
    /// One of our chains exists, although it is not desired.
    Leftover,
    /// A base chain has another hook.
    Hook { wanted: String, found: String },
    /// A desired rule is not at its position.
    Missing {
        /// 1-based position among the desired rules of the chain.
        place: usize,
        /// The rule in the format of `iptables-save`.
        rule: String,
        /// The observed rule at that position, if there is one.
        instead: Option<String>,
    },
    /// A rule exists, although it is not desired.
    Unwanted {
        /// 1-based position in the chain.
        place: usize,
        rule: String,
    },
    /// Packets do not get from the chain's hook to our chain `to`.
    NoJump { to: String },
    /// Rules jump to the chain, but it redirects nothing.
    Idle,
    /// Another program's rule makes packets skip the jump to our chain.
    Bypass {
        /// 1-based position in the chain.
        place: usize,
        rule: String,
        owner: &'static str,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, chain, kind } = self;
        let table = describe::table(*table);
        match kind {
            DifferenceKind::Dormant => write!(f, "{table} is dormant"),
            DifferenceKind::UnwantedTable => write!(f, "{table} is left over"),
            DifferenceKind::NoChain => write!(f, "{table} has no chain {chain}"),
            DifferenceKind::Leftover => write!(f, "{table} has the leftover chain {chain}"),
            DifferenceKind::Hook { wanted, found } => {
                write!(f, "chain {chain} of {table} has {found} instead of {wanted}")
            }
            DifferenceKind::Missing { place, rule, instead: Some(instead) } => {
                write!(f, "chain {chain} of {table} has `{instead}` instead of rule {place} `{rule}`")
            }
            DifferenceKind::Missing { place, rule, instead: None } => {
                write!(f, "chain {chain} of {table} is missing rule {place} `{rule}`")
            }
            DifferenceKind::Unwanted { place, rule } => {
                write!(f, "chain {chain} of {table} has the unexpected rule {place} `{rule}`")
            }
            DifferenceKind::NoJump { to } => write!(f, "no rule of chain {chain} of {table} jumps to {to}"),
            DifferenceKind::Idle => write!(f, "chain {chain} of {table} has no rule that redirects"),
            DifferenceKind::Bypass { place, rule, owner } => write!(
                f,
                "chain {chain} of {table} has rule {place} `{rule}` before {owner}'s jump: packets that match it are not redirected"
            ),
        }
    }
}
