//! The desired content of the kernel's tables: a [`RuleSet`](ruleset::RuleSet) encoded for a backend.
//!
//! The encoders (`compat`, `native`, `legacy`) create it, `diff` compares it with a dump, `batch` encodes it.

use ruleset::{Family, Owned, Proto};

use super::expr::Expr;

/// A table's family (`NFPROTO_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum TableFamily {
    Inet = 1,
    Ip = 2,
    Ip6 = 10,
}

impl TableFamily {
    /// Returns the family with this number, if one of our tables can have it.
    pub(super) fn from_number(number: u8) -> Option<Self> {
        [Self::Inet, Self::Ip, Self::Ip6].into_iter().find(|f| *f as u8 == number)
    }
}

/// Encodes `struct nfgenmsg`, the header of each message.
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

/// The identity of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct TableId {
    pub(super) family: TableFamily,
    pub(super) name: &'static str,
}

impl TableId {
    /// Whether it is a native table, which no other program shares.
    pub(super) fn is_native(self) -> bool {
        ruleset::Table::ALL.iter().all(|shared| shared.as_str() != self.name)
    }

    /// Whether a chain in the table is ours.
    pub(super) fn owns(self, chain: &str, owned: &Owned) -> bool {
        self.is_native() || owned.has(chain)
    }
}

/// All tables that a rule set needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Image<'a> {
    /// Tables with at least one chain.
    pub(super) tables: Vec<Table<'a>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table<'a> {
    pub(super) id: TableId,
    /// Base chains first.
    pub(super) chains: Vec<Chain<'a>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chain<'a> {
    pub(super) name: &'static str,
    /// None for a chain that is not a base chain.
    pub(super) hook: Option<Hook>,
    /// The rules in their order.
    pub(super) rules: Vec<Rule<'a>>,
}

/// The hook of a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hook {
    /// Chain type: `filter`, `nat` or `route`.
    pub(super) kind: &'static str,
    /// `NF_INET_*`
    pub(super) number: u32,
    pub(super) priority: i32,
}

/// `NF_INET_PRE_ROUTING`
pub(super) const PREROUTING: u32 = 0;

impl Hook {
    /// Returns the hook of a built-in chain; iptables' tables and native tables use the same hooks.
    pub(super) fn of(table: ruleset::Table, chain: ruleset::Chain) -> Option<Self> {
        let ruleset::Chain::Builtin(hook) = chain else { return None };
        // `NF_INET_*`
        let number = match hook {
            ruleset::Hook::Prerouting => PREROUTING,
            ruleset::Hook::Input => 1,
            ruleset::Hook::Forward => 2,
            ruleset::Hook::Output => 3,
            ruleset::Hook::Postrouting => 4,
        };
        let kind = match (table, hook) {
            (ruleset::Table::Nat, _) => "nat",
            (ruleset::Table::Mangle, ruleset::Hook::Output) => "route",
            (ruleset::Table::Mangle | ruleset::Table::Raw, _) => "filter",
        };
        Some(Self { kind, number, priority: table.priority(hook) })
    }
}

/// A rule's content in its backend's representation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    Exprs(Vec<Expr>),
    /// A line of `iptables-legacy-save`.
    Saved(String),
}

impl Body {
    /// Returns the rule's expressions; a saved line has none.
    pub(super) fn exprs(&self) -> &[Expr] {
        match self {
            Self::Exprs(exprs) => exprs,
            Self::Saved(_) => &[],
        }
    }

    /// Returns the chain that the rule jumps or goes to; for a saved line its target, even if that is not a chain.
    pub(super) fn jumps_to(&self) -> Option<&str> {
        match self {
            Self::Exprs(exprs) => exprs.iter().find_map(Expr::jumps_to),
            Self::Saved(line) => {
                let (_, target) = line.rsplit_once(" -j ").or_else(|| line.rsplit_once(" -g "))?;
                target.split(' ').next()
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule<'a> {
    pub(super) body: Body,
    /// The protocol that the rule matches, which the kernel needs for iptables extensions.
    pub(super) protocol: Option<Proto>,
    /// The rule that `body` encodes.
    pub(super) source: &'a ruleset::Rule,
}
