//! Plans the removal of our rules and of nothing else.
//!
//! Own chains and native tables are always deleted; a built-in chain only if it has the policy ACCEPT and no other rule,
//! and an iptables table only if nothing else is left in it. Pure.

use ruleset::Owned;

use super::batch::Change;
use super::diff::{align, leads_to_own};
use super::image::{Image, Rule};
use super::live::{Live, LiveChain, LiveTable};

/// Returns the changes in order. A rule in a built-in chain is ours if it jumps to one of our chains, or if it is in
/// `image`.
pub(super) fn changes<'a>(image: &Image<'_>, live: &'a Live) -> Vec<Change<'a>> {
    live.tables.iter().flat_map(|table| from_table(image, table, live.owned)).collect()
}

fn from_table<'a>(image: &Image<'_>, table: &'a LiveTable, owned: &Owned) -> Vec<Change<'a>> {
    if table.id.is_native() {
        return vec![Change::DeleteTable(table.id)];
    }
    let wanted = image.tables.iter().find(|t| t.id == table.id);
    let (mut rules, mut chains, mut kept) = (Vec::new(), Vec::new(), 0);
    for chain in &table.chains {
        if table.id.owns(&chain.name, owned) {
            rules.push(Change::Flush(table.id, &chain.name));
            chains.push(Change::DeleteChain(table.id, &chain.name));
            continue;
        }
        let of_image = wanted.and_then(|t| t.chains.iter().find(|c| c.name == chain.name));
        let ours = ours(table, chain, of_image.map_or(&[], |c| &c.rules), owned);
        let is_idle = chain.hook.as_ref().is_some_and(|h| h.accepts) && ours.len() == chain.rules.len();
        rules.extend(ours.iter().map(|handle| Change::DeleteRule(table.id, &chain.name, *handle)));
        if is_idle && (of_image.is_some() || !ours.is_empty()) {
            chains.push(Change::DeleteChain(table.id, &chain.name));
        } else {
            kept += 1;
        }
    }
    let alone = usize::try_from(table.uses) == Ok(table.chains.len());
    match chains.is_empty() && rules.is_empty() {
        true => Vec::new(),
        false if kept == 0 && alone => vec![Change::DeleteTable(table.id)],
        false => rules.into_iter().chain(chains).collect(),
    }
}

/// Returns the handles of our rules in a shared chain.
pub(super) fn ours(table: &LiveTable, chain: &LiveChain, wanted: &[Rule<'_>], owned: &Owned) -> Vec<u64> {
    let candidates: Vec<_> = chain.rules.iter().enumerate().collect();
    let matched = align(wanted, &candidates);
    let is_ours = |i: usize| matched.iter().any(|(_, l)| *l == i);
    let rules = candidates.iter().filter(|(i, rule)| is_ours(*i) || leads_to_own(table.id, rule, owned));
    rules.map(|(_, rule)| rule.handle).collect()
}
