//! What the kernel's tables are to hold: a [`RuleSet`](crate::rules::RuleSet) put into the words of nf_tables.
//!
//! Made by the encoders (`compat`, `native`), compared with a dump by `diff`, written out by `batch`.

use super::expr::Expr;
use crate::rules::{self, Family, Proto};

/// Family of a table (`NFPROTO_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum TableFamily {
    /// IPv4 and IPv6.
    Inet = 1,
    /// IPv4.
    Ip = 2,
    /// IPv6.
    Ip6 = 10,
}

impl TableFamily {
    /// The family with this number, if a table of ours can have it.
    pub(super) fn from_number(number: u8) -> Option<Self> {
        [Self::Inet, Self::Ip, Self::Ip6].into_iter().find(|f| *f as u8 == number)
    }
}

/// `struct nfgenmsg`, with which each message starts.
pub(super) fn family_header(family: Option<TableFamily>) -> [u8; 4] {
    [family.map_or(0, |f| f as u8), 0, 0, 0]
}

impl From<Family> for TableFamily {
    fn from(family: Family) -> Self {
        match family {
            Family::V4 => Self::Ip,
            Family::V6 => Self::Ip6,
        }
    }
}

/// A table, by what identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct TableId {
    /// Family.
    pub(super) family: TableFamily,
    /// Name.
    pub(super) name: &'static str,
}

impl TableId {
    /// Whether it is one of Istio's native tables, in which nothing belongs to anyone else.
    pub(super) fn is_native(self) -> bool {
        self.name.starts_with("istio-proxy-")
    }
}

/// All tables that a rule set needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Image<'a> {
    /// Tables that hold something.
    pub(super) tables: Vec<Table<'a>>,
}

/// One table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table<'a> {
    /// Which.
    pub(super) id: TableId,
    /// Chains, those of the kernel's hooks first.
    pub(super) chains: Vec<Chain<'a>>,
}

/// One chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chain<'a> {
    /// Name.
    pub(super) name: &'static str,
    /// Where the kernel calls it, if it does.
    pub(super) hook: Option<Hook>,
    /// Rules from first to last.
    pub(super) rules: Vec<Rule<'a>>,
}

/// Where the kernel calls a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hook {
    /// Type of chain: `filter`, `nat`, `route`.
    pub(super) kind: &'static str,
    /// Hook number (`NF_INET_*`).
    pub(super) number: u32,
    /// Priority.
    pub(super) priority: i32,
}

/// `NF_INET_PRE_ROUTING`
pub(super) const PREROUTING: u32 = 0;
/// `NF_INET_LOCAL_OUT`
pub(super) const OUTPUT: u32 = 3;

impl Hook {
    /// The hook of a table's built-in chain, if the chain is one. iptables and Istio's nft tables agree on it.
    pub(super) fn of(table: rules::Table, chain: rules::Chain) -> Option<Self> {
        let number = match chain {
            rules::Chain::Prerouting => PREROUTING,
            rules::Chain::Output => OUTPUT,
            _ => return None,
        };
        let (kind, priority) = match (table, number) {
            (rules::Table::Nat, _) => ("nat", -100),
            (rules::Table::Mangle, OUTPUT) => ("route", -150),
            (rules::Table::Mangle, _) => ("filter", -150),
            (rules::Table::Raw, _) => ("filter", -300),
        };
        Some(Self { kind, number, priority })
    }
}

/// What a rule consists of, in its backend's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    /// nf_tables.
    Exprs(Vec<Expr>),
    /// The line of `iptables-legacy-save`.
    Saved(String),
}

impl Body {
    /// Expressions; a saved line has none.
    pub(super) fn exprs(&self) -> &[Expr] {
        match self {
            Self::Exprs(exprs) => exprs,
            Self::Saved(_) => &[],
        }
    }

    /// The chain to which the rule sends packets on, or, in a saved line, whatever it jumps to.
    pub(super) fn jumps_to(&self) -> Option<&str> {
        match self {
            Self::Exprs(exprs) => exprs.iter().find_map(Expr::jumps_to),
            Self::Saved(line) => line.rsplit_once(" -j ").and_then(|(_, target)| target.split(' ').next()),
        }
    }
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule<'a> {
    /// What it consists of.
    pub(super) body: Body,
    /// Its protocol, which extensions of iptables ask for.
    pub(super) protocol: Option<Proto>,
    /// The rule that it stands for.
    pub(super) source: &'a rules::Rule,
}
