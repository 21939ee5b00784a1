//! The rules of each chain in their final order.
//!
//! The encoders for netlink, which write whole chains, and the comparison with the kernel's rules need this order
//! instead of the order of application. Inserts are resolved here as iptables and nft resolve them.

use std::collections::BTreeMap;

use crate::{At, Chain, Family, Layout, Rule, RuleSet, Table};

/// The chains that contain rules or are jumped to, with their rules from first to last.
///
/// A chain that is only jumped to has no rules; the kernel needs it nevertheless.
pub type Chains<'a> = BTreeMap<(Table, Chain), Vec<&'a Rule>>;

impl RuleSet {
    pub fn empty(layout: &'static Layout) -> Self {
        Self { ipv6: false, layout, rules: Vec::new() }
    }

    /// Returns the same rules for a netns with or without IPv6.
    pub fn covering(&self, ipv6: bool) -> Self {
        Self { ipv6, ..self.clone() }
    }

    /// Returns the rules of one family in order of application; no IPv6 rules without `ipv6`.
    pub fn of(&self, family: Family) -> impl Iterator<Item = &Rule> {
        let there = family == Family::V4 || self.ipv6;
        self.rules.iter().filter(move |r| there && r.families.has(family))
    }

    /// Returns the rules of all families that the pod has, in order of application, for a table of both families (nft's
    /// `inet`). A rule of [`Families::Both`](crate::Families::Both) appears once.
    pub fn merged(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|r| r.families.has(Family::V4) || self.ipv6)
    }

    pub fn chains(&self, family: Family) -> Chains<'_> {
        resolve(self.of(family))
    }

    /// Returns the chains of tables with both families. The IPv4 and IPv6 variants of a rule share a chain there; inserted
    /// at the same position, the IPv6 variant, which is applied later, precedes the IPv4 variant.
    pub fn merged_chains(&self) -> Chains<'_> {
        resolve(self.merged())
    }
}

fn resolve<'a>(rules: impl Iterator<Item = &'a Rule>) -> Chains<'a> {
    let mut chains = Chains::new();
    for rule in rules {
        if let Some(next) = rule.jumps_to() {
            chains.entry((rule.table, next)).or_default();
        }
        let chain = chains.entry((rule.table, rule.chain)).or_default();
        let index = rule.at.index(chain.len());
        chain.insert(index, rule);
    }
    chains
}

impl At {
    /// Returns the 0-based index of a rule in a chain of `len` rules; a position past the end is the end.
    pub fn index(self, len: usize) -> usize {
        match self {
            Self::End => len,
            Self::Place(n) => usize::try_from(n.saturating_sub(1)).map_or(len, |i| i.min(len)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Families, Interface, Match, Target, sample};

    fn rule(name: &str, at: At, families: Families) -> Rule {
        let nic = Interface::new(name).unwrap();
        let matches = vec![Match::InInterface(nic)];
        Rule { table: Table::Nat, chain: Chain::PREROUTING, at, families, matches, target: Target::Return }
    }

    fn names(rules: &[&Rule]) -> Vec<String> {
        let name = |r: &&Rule| match &r.matches[..] {
            [Match::InInterface(nic)] => nic.to_string(),
            other => format!("{other:?}"),
        };
        rules.iter().map(name).collect()
    }

    #[test]
    fn inserts_apply_to_the_chain_as_earlier_rules_left_it() {
        let rules = vec![
            rule("a", At::Place(1), Families::Both),
            rule("b", At::Place(1), Families::Both),
            rule("c", At::End, Families::Both),
            rule("d", At::Place(2), Families::Both),
            rule("e", At::Place(9), Families::Both),
        ];
        let set = RuleSet { ipv6: false, layout: &sample::LAYOUT, rules };
        assert_eq!(names(&set.chains(Family::V4)[&(Table::Nat, Chain::PREROUTING)]), ["b", "d", "a", "c", "e"]);
    }

    #[test]
    fn a_family_has_only_its_own_rules() {
        let rules = vec![
            rule("four", At::End, Families::V4),
            rule("six", At::End, Families::V6),
            rule("both", At::End, Families::Both),
        ];
        let mut set = RuleSet { ipv6: true, layout: &sample::LAYOUT, rules };
        let key = (Table::Nat, Chain::PREROUTING);
        assert_eq!(names(&set.chains(Family::V4)[&key]), ["four", "both"]);
        assert_eq!(names(&set.chains(Family::V6)[&key]), ["six", "both"]);
        assert_eq!(names(&set.merged_chains()[&key]), ["four", "six", "both"]);
        set.ipv6 = false;
        assert!(set.chains(Family::V6).is_empty());
        assert_eq!(names(&set.merged_chains()[&key]), ["four", "both"]);
    }

    #[test]
    fn merged_variants_inserted_at_one_position_are_in_reverse_order() {
        let rules = vec![
            rule("old", At::End, Families::Both),
            rule("four", At::Place(1), Families::V4),
            rule("six", At::Place(1), Families::V6),
        ];
        let set = RuleSet { ipv6: true, layout: &sample::LAYOUT, rules };
        assert_eq!(names(&set.merged_chains()[&(Table::Nat, Chain::PREROUTING)]), ["six", "four", "old"]);
    }

    #[test]
    fn a_chain_that_is_only_jumped_to_exists() {
        let mut jump = rule("a", At::End, Families::Both);
        jump.target = Target::Jump(sample::OURS);
        let set = RuleSet { ipv6: false, layout: &sample::LAYOUT, rules: vec![jump] };
        assert_eq!(set.chains(Family::V4)[&(Table::Nat, sample::OURS)], Vec::<&Rule>::new());
    }
}
