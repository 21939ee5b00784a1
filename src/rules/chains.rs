//! What each chain holds once all rules are in.
//!
//! The codecs that write whole chains (netlink) or compare them (observers, CHECK) read chains, not the order of
//! application: an insert is resolved here, once, the way iptables and nft resolve it.

use std::collections::BTreeMap;

use super::ruleset::{At, Chain, Family, Rule, RuleSet, Table};

/// Every chain that a rule is in or jumps to, with its rules from first to last.
///
/// A chain that is only jumped to is there with no rules: the kernel must have it all the same.
pub type Chains<'a> = BTreeMap<(Table, Chain), Vec<&'a Rule>>;

impl RuleSet {
    /// The rules of one family in order of application; none for IPv6 where the pod has none.
    pub fn of(&self, family: Family) -> impl Iterator<Item = &Rule> {
        let there = family == Family::V4 || self.ipv6;
        self.rules.iter().filter(move |r| there && r.families.has(family))
    }

    /// The rules that the pod has in at least one family, in order of application: what a table for both families
    /// (nft's `inet`) takes. A rule of [`Families::Both`](super::Families::Both) is there once.
    pub fn merged(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|r| r.families.has(Family::V4) || self.ipv6)
    }

    /// The chains of one family's tables.
    pub fn chains(&self, family: Family) -> Chains<'_> {
        resolve(self.of(family))
    }

    /// The chains of tables that hold both families. The twins of a rule share a chain there, so that an insert at
    /// one place puts the IPv6 twin, which comes later, before the IPv4 twin.
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
    /// The index, counted from 0, that a rule gets in a chain of `len` rules; a place past the end is the end.
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
    use crate::redirect::Interface;
    use crate::rules::{Families, Match, Target};

    fn rule(name: &str, at: At, families: Families) -> Rule {
        let nic = Interface::parse("test", name).unwrap();
        let matches = vec![Match::InInterface(nic)];
        Rule { table: Table::Nat, chain: Chain::Prerouting, at, families, matches, target: Target::Return }
    }

    fn names(rules: &[&Rule]) -> Vec<String> {
        let name = |r: &&Rule| match &r.matches[..] {
            [Match::InInterface(nic)] => nic.to_string(),
            other => format!("{other:?}"),
        };
        rules.iter().map(name).collect()
    }

    #[test]
    fn inserts_see_the_chain_as_earlier_rules_left_it() {
        let rules = vec![
            rule("a", At::Place(1), Families::Both),
            rule("b", At::Place(1), Families::Both),
            rule("c", At::End, Families::Both),
            rule("d", At::Place(2), Families::Both),
            rule("e", At::Place(9), Families::Both),
        ];
        let set = RuleSet { ipv6: false, rules };
        assert_eq!(names(&set.chains(Family::V4)[&(Table::Nat, Chain::Prerouting)]), ["b", "d", "a", "c", "e"]);
    }

    #[test]
    fn a_family_sees_only_its_own_rules() {
        let rules = vec![
            rule("four", At::End, Families::V4),
            rule("six", At::End, Families::V6),
            rule("both", At::End, Families::Both),
        ];
        let mut set = RuleSet { ipv6: true, rules };
        let key = (Table::Nat, Chain::Prerouting);
        assert_eq!(names(&set.chains(Family::V4)[&key]), ["four", "both"]);
        assert_eq!(names(&set.chains(Family::V6)[&key]), ["six", "both"]);
        assert_eq!(names(&set.merged_chains()[&key]), ["four", "six", "both"]);
        set.ipv6 = false;
        assert!(set.chains(Family::V6).is_empty());
        assert_eq!(names(&set.merged_chains()[&key]), ["four", "both"]);
    }

    #[test]
    fn merged_twins_inserted_at_one_place_come_last_first() {
        let rules = vec![
            rule("old", At::End, Families::Both),
            rule("four", At::Place(1), Families::V4),
            rule("six", At::Place(1), Families::V6),
        ];
        let set = RuleSet { ipv6: true, rules };
        assert_eq!(names(&set.merged_chains()[&(Table::Nat, Chain::Prerouting)]), ["six", "four", "old"]);
    }

    #[test]
    fn a_chain_that_is_only_jumped_to_exists() {
        let mut jump = rule("a", At::End, Families::Both);
        jump.target = Target::Jump(Chain::IstioInbound);
        let set = RuleSet { ipv6: false, rules: vec![jump] };
        assert_eq!(set.chains(Family::V4)[&(Table::Nat, Chain::IstioInbound)], Vec::<&Rule>::new());
    }
}
