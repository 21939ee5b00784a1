//! Compares desired and observed tables: the differences, and the minimal changes that resolve them.
//!
//! Own chains must match exactly. Shared chains must contain our rules in order; rules between them are ignored
//! unless they jump to our chains. A rule in a shared chain that an earlier configuration needed and that jumps to no
//! chain of ours is deleted only if the table also has a chain of ours that is not desired: otherwise it is
//! indistinguishable from other programs' rules. Pure.

use std::borrow::Cow;

use ruleset::{At, Owned};

use super::batch::{Change, Position};
use super::describe;
use super::difference::{Difference, DifferenceKind};
use super::image::{Chain, Image, Rule, Table, TableId};
use super::live::{Live, LiveChain, LiveRule, LiveTable};

/// The observed tables, compared with the desired ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RulesState {
    /// None of our rules or chains exists.
    Absent,
    /// Everything is as desired.
    Same,
    /// Some of our rules or chains exist, but not as desired.
    Differs(Vec<Difference>),
}

/// The state of the observed tables, with the changes that lead to the desired ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Comparison<'a> {
    pub(super) state: RulesState,
    pub(super) changes: Vec<Change<'a>>,
}

/// Compares `live` with `image`. `former` holds the rules that earlier settings may have added.
pub(super) fn compare<'a>(image: Image<'a>, former: &Image<'_>, live: &'a Live) -> Comparison<'a> {
    let mut work = Work::new(live.owned);
    for live in &live.tables {
        let wanted = image.tables.iter().find(|table| table.id == live.id);
        if let Some(former) = former.tables.iter().find(|table| table.id == live.id) {
            work.residue(former, wanted, live);
        }
    }
    for live in live.tables.iter().filter(|l| image.tables.iter().all(|t| t.id != l.id)) {
        work.unwanted_table(live);
    }
    for table in image.tables {
        match live.tables.iter().find(|l| l.id == table.id) {
            Some(live) => work.table(table, live),
            None => work.add_table(table),
        }
    }
    work.finish()
}

/// Whether a rule jumps to one of our chains.
pub(super) fn leads_to_own(table: TableId, rule: &LiveRule, owned: &Owned) -> bool {
    rule.body.jumps_to().is_some_and(|chain| table.owns(chain, owned))
}

struct Work<'a> {
    owned: &'a Owned,
    differences: Vec<Difference>,
    /// Whether any of our rules or chains exists.
    seen: bool,
    deleted_rules: Vec<Change<'a>>,
    deleted_chains: Vec<Change<'a>>,
    added: Vec<Change<'a>>,
    added_rules: Vec<Change<'a>>,
}

impl<'a> Work<'a> {
    fn new(owned: &'a Owned) -> Self {
        Self {
            owned,
            differences: Vec::new(),
            seen: false,
            deleted_rules: Vec::new(),
            deleted_chains: Vec::new(),
            added: Vec::new(),
            added_rules: Vec::new(),
        }
    }

    fn finish(self) -> Comparison<'a> {
        let state = match (self.differences.is_empty(), self.seen) {
            (true, _) => RulesState::Same,
            (false, false) => RulesState::Absent,
            (false, true) => RulesState::Differs(self.differences),
        };
        let changes = [self.deleted_rules, self.deleted_chains, self.added, self.added_rules];
        Comparison { state, changes: changes.into_iter().flatten().collect() }
    }

    fn difference(&mut self, table: TableId, chain: impl Into<Cow<'static, str>>, kind: DifferenceKind) {
        self.differences.push(Difference::new(table, chain, kind));
    }

    fn add_table(&mut self, table: Table<'a>) {
        self.added.push(Change::AddTable(table.id));
        for chain in table.chains {
            self.add_chain(table.id, chain);
        }
    }

    fn unwanted_table(&mut self, live: &'a LiveTable) {
        if !live.id.is_native() {
            return self.table(Table { id: live.id, chains: Vec::new() }, live);
        }
        self.seen = true;
        self.difference(live.id, "", DifferenceKind::UnwantedTable);
        self.deleted_rules.push(Change::DeleteTable(live.id));
    }

    fn add_chain(&mut self, table: TableId, chain: Chain<'a>) {
        self.difference(table, chain.name, DifferenceKind::NoChain);
        self.added.push(Change::AddChain(table, chain.name, chain.hook));
        let add = |rule| Change::AddRule(table, chain.name, rule, Position::Last);
        self.added_rules.extend(chain.rules.into_iter().map(add));
    }

    fn table(&mut self, mut wanted: Table<'a>, live: &'a LiveTable) {
        let owned = self.owned;
        if live.dormant && !wanted.chains.is_empty() {
            self.difference(live.id, "", DifferenceKind::Dormant);
            self.added.push(Change::AddTable(live.id));
        }
        for chain in &live.chains {
            self.seen |= live.id.owns(&chain.name, owned);
            match wanted.chains.iter().position(|w| w.name == chain.name) {
                Some(i) => self.chain(live.id, &wanted.chains.remove(i), chain),
                None if live.id.owns(&chain.name, owned) => self.leftover(live.id, chain),
                None => self.strays(live.id, chain),
            }
        }
        for absent in wanted.chains {
            self.add_chain(live.id, absent);
        }
    }

    fn leftover(&mut self, table: TableId, chain: &'a LiveChain) {
        self.difference(table, chain.name.clone(), DifferenceKind::Leftover);
        self.deleted_rules.push(Change::Flush(table, &chain.name));
        self.deleted_chains.push(Change::DeleteChain(table, &chain.name));
    }

    /// Deletes rules that jump to our chains from a shared chain in which no rule is desired.
    fn strays(&mut self, table: TableId, chain: &'a LiveChain) {
        let owned = self.owned;
        for (i, rule) in chain.rules.iter().enumerate().filter(|(_, r)| leads_to_own(table, r, owned)) {
            self.seen = true;
            self.unwanted(table, chain, &[], i + 1, rule);
        }
    }

    /// Deletes the `former` rules that are not desired from the shared chains of a table that has an own chain that is not
    /// desired.
    fn residue(&mut self, former: &Table<'_>, wanted: Option<&Table<'_>>, live: &'a LiveTable) {
        let owned = self.owned;
        let wanted = |name: &str| wanted.into_iter().flat_map(|t| &t.chains).find(|chain| chain.name == name);
        let is_left = |chain: &LiveChain| live.id.owns(&chain.name, owned) && wanted(&chain.name).is_none();
        if live.id.is_native() || !live.chains.iter().any(is_left) {
            return;
        }
        for chain in live.chains.iter().filter(|chain| !live.id.owns(&chain.name, owned)) {
            let known = former.chains.iter().find(|former| former.name == chain.name).map_or(&[][..], |f| &f.rules);
            let desired = wanted(&chain.name).map_or(&[][..], |wanted| &wanted.rules);
            for (i, rule) in chain.rules.iter().enumerate().filter(|(_, rule)| !leads_to_own(live.id, rule, owned)) {
                let has = |rules: &[Rule<'_>]| rules.iter().any(|one| one.body == rule.body);
                if has(known) && !has(desired) {
                    let text = describe::live(live.id, &chain.name, known, rule);
                    let place = i + 1;
                    self.difference(live.id, chain.name.clone(), DifferenceKind::Unwanted { place, rule: text });
                    self.deleted_rules.push(Change::DeleteRule(live.id, &chain.name, rule.handle));
                }
            }
        }
    }

    fn unwanted(&mut self, table: TableId, chain: &'a LiveChain, known: &[Rule<'a>], place: usize, rule: &LiveRule) {
        let text = describe::live(table, &chain.name, known, rule);
        self.difference(table, chain.name.clone(), DifferenceKind::Unwanted { place, rule: text });
        self.deleted_rules.push(Change::DeleteRule(table, &chain.name, rule.handle));
    }

    fn chain(&mut self, table: TableId, wanted: &Chain<'a>, live: &'a LiveChain) {
        let owned = self.owned;
        self.hook(table, wanted, live);
        let own = table.owns(&live.name, owned);
        let ours = |r: &LiveRule| own || leads_to_own(table, r, owned) || wanted.rules.iter().any(|w| w.body == r.body);
        let candidates: Vec<(usize, &LiveRule)> = live.rules.iter().enumerate().filter(|(_, r)| ours(r)).collect();
        let kept = align(&wanted.rules, &candidates);
        self.seen |= !kept.is_empty() || candidates.iter().any(|(_, r)| leads_to_own(table, r, owned));
        let (mut w, mut c) = (0, 0);
        let ends = kept.iter().copied().chain([(wanted.rules.len(), candidates.len())]);
        for (next_w, next_c) in ends {
            let missing = wanted.rules.get(w..next_w).unwrap_or_default();
            let extra = candidates.get(c..next_c).unwrap_or_default();
            let next = candidates.get(next_c).map(|(_, r)| r.handle);
            self.gap(&Gap { owned, table, wanted, live, own, first: w, missing, extra, next, kept: &kept });
            (w, c) = (next_w + 1, next_c + 1);
        }
    }

    fn hook(&mut self, table: TableId, wanted: &Chain<'a>, live: &'a LiveChain) {
        let own = table.owns(wanted.name, self.owned);
        let (wanted_hook, found) = (describe::hook(wanted.hook), describe::live_hook(live.hook.as_ref(), own));
        if wanted_hook != found {
            self.difference(table, wanted.name, DifferenceKind::Hook { wanted: wanted_hook, found });
            self.added.push(Change::AddChain(table, wanted.name, wanted.hook));
        }
    }

    /// Plans the changes between two kept rules: missing rules are added, and surplus rules are deleted.
    fn gap(&mut self, gap: &Gap<'_, 'a>) {
        let Gap { owned, table, wanted, live, own, .. } = *gap;
        for (i, rule) in gap.missing.iter().enumerate() {
            let text = describe::wanted(table, rule);
            let instead = gap.extra.get(i).map(|(_, r)| describe::live(table, wanted.name, &wanted.rules, r));
            self.difference(
                table,
                wanted.name,
                DifferenceKind::Missing { place: gap.first + i + 1, rule: text, instead },
            );
            let position = match (gap.next, rule.source.at) {
                (Some(handle), _) => Position::Before(handle),
                (None, At::Place(_)) if !own => gap.before_others(live),
                (None, _) => Position::Last,
            };
            self.added_rules.push(Change::AddRule(table, wanted.name, rule.clone(), position));
        }
        for (i, (place, rule)) in gap.extra.iter().enumerate() {
            // In a shared chain, an extra rule is deleted only if it jumps to our chains or is added again at another
            // position. Any other duplicate of one of our rules may belong to another program.
            let replaced = gap.replaces(rule);
            if !own && !leads_to_own(table, rule, owned) && !replaced {
                continue;
            }
            match i < gap.missing.len() {
                true => self.deleted_rules.push(Change::DeleteRule(table, &live.name, rule.handle)),
                false => self.unwanted(table, live, &wanted.rules, place + 1, rule),
            }
        }
    }
}

struct Gap<'g, 'a> {
    owned: &'a Owned,
    table: TableId,
    wanted: &'g Chain<'a>,
    live: &'a LiveChain,
    own: bool,
    /// The index of the first missing rule.
    first: usize,
    missing: &'g [Rule<'a>],
    extra: &'g [(usize, &'a LiveRule)],
    /// The handle of the next rule that stays, if there is one.
    next: Option<u64>,
    /// All index pairs of desired and kept rules.
    kept: &'g [(usize, usize)],
}

impl Gap<'_, '_> {
    /// Whether the rule equals a desired rule that matches none of the kept rules and is therefore added again.
    fn replaces(&self, rule: &LiveRule) -> bool {
        let is_kept = |i: usize| self.kept.iter().any(|(w, _)| *w == i);
        self.wanted.rules.iter().enumerate().any(|(i, w)| w.body == rule.body && !is_kept(i))
    }

    /// Returns the position before the first rule that stays in the chain.
    fn before_others(&self, live: &LiveChain) -> Position {
        let stays = |r: &&LiveRule| !leads_to_own(self.table, r, self.owned) && !self.replaces(r);
        live.rules.iter().find(stays).map_or(Position::Last, |r| Position::Before(r.handle))
    }
}

/// Maximum number of comparisons in an alignment. Beyond it, all rules between the common start and the common end
/// are treated as different.
const ALIGN_LIMIT: usize = 4_000_000;

/// Returns the index pairs of a longest common subsequence of desired and observed rules.
pub(super) fn align(wanted: &[Rule<'_>], live: &[(usize, &LiveRule)]) -> Vec<(usize, usize)> {
    let equal =
        |w: usize, l: usize| matches!((wanted.get(w), live.get(l)), (Some(w), Some((_, l))) if w.body == l.body);
    let shorter = wanted.len().min(live.len());
    let head = (0..shorter).take_while(|i| equal(*i, *i)).count();
    let tail = (0..shorter - head).take_while(|i| equal(wanted.len() - 1 - i, live.len() - 1 - i)).count();
    let (rows, columns) = (wanted.len() - head - tail, live.len() - head - tail);
    let mut pairs: Vec<_> = (0..head).map(|i| (i, i)).collect();
    pairs
        .extend(middle(rows, columns, |w, l| equal(head + w, head + l)).into_iter().map(|(w, l)| (head + w, head + l)));
    pairs.extend((0..tail).rev().map(|i| (wanted.len() - 1 - i, live.len() - 1 - i)));
    pairs
}

/// Returns a longest common subsequence of two runs that share neither the first nor the last element.
fn middle(rows: usize, columns: usize, equal: impl Fn(usize, usize) -> bool) -> Vec<(usize, usize)> {
    if rows.saturating_mul(columns) > ALIGN_LIMIT {
        return Vec::new();
    }
    let width = columns + 1;
    // lengths[w * width + l] is the length of the longest common subsequence of the rules from w and l on.
    let mut lengths = vec![0_u32; (rows + 1) * width];
    let at = |lengths: &[u32], w: usize, l: usize| lengths.get(w * width + l).copied().unwrap_or_default();
    for w in (0..rows).rev() {
        for l in (0..columns).rev() {
            let best = match equal(w, l) {
                true => at(&lengths, w + 1, l + 1) + 1,
                false => at(&lengths, w + 1, l).max(at(&lengths, w, l + 1)),
            };
            if let Some(cell) = lengths.get_mut(w * width + l) {
                *cell = best;
            }
        }
    }
    let (mut w, mut l, mut pairs) = (0, 0, Vec::new());
    while w < rows && l < columns {
        if equal(w, l) {
            pairs.push((w, l));
            (w, l) = (w + 1, l + 1);
        } else if at(&lengths, w + 1, l) >= at(&lengths, w, l + 1) {
            w += 1;
        } else {
            l += 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use ruleset::{Match, Target};

    use super::*;
    use crate::image::Body;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Returns the length of a longest common subsequence, found by brute force.
    fn longest(wanted: &[u8], live: &[u8]) -> usize {
        match (wanted, live) {
            ([w, rest_w @ ..], [l, rest_l @ ..]) if w == l => 1 + longest(rest_w, rest_l),
            ([_, rest_w @ ..], [_, rest_l @ ..]) => longest(rest_w, live).max(longest(wanted, rest_l)),
            _ => 0,
        }
    }

    proptest! {
        #[test]
        fn alignment_keeps_as_much_as_can_be_kept(wanted in vec(0..4_u8, 0..8), live in vec(0..4_u8, 0..8)) {
            let source = ruleset::Rule::new(ruleset::Table::Nat, ruleset::Chain::OUTPUT, [Match::tcp()], Target::Return);
            let body = |b: &u8| Body::Saved(b.to_string());
            let rule = |b| Rule { body: body(b), protocol: None, source: &source };
            let image: Vec<_> = wanted.iter().map(rule).collect();
            let there: Vec<_> = live.iter().map(|b| LiveRule { handle: 0, body: body(b) }).collect();
            let candidates: Vec<_> = there.iter().enumerate().collect();
            let pairs = align(&image, &candidates);
            prop_assert!(pairs.iter().all(|(w, l)| wanted[*w] == live[*l]));
            prop_assert!(pairs.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
            prop_assert_eq!(pairs.len(), longest(&wanted, &live));
        }
    }

    #[test]
    fn no_desired_and_no_observed_rules_are_the_same() {
        let live = Live::fresh(crate::Backend::IptablesNft, &redirect::istio::OWNED);
        let comparison = compare(Image::default(), &Image::default(), &live);
        assert_eq!((comparison.state, comparison.changes.len()), (RulesState::Same, 0));
    }
}
