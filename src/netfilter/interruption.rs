//! Finds the places at which traffic no longer reaches a redirecting rule: a missing jump to one of Istio's chains, and a
//! chain that no longer redirects.
//!
//! The pod's settings may have changed since its rules were added, and another version may have added them. A place is
//! therefore named only if every setting needs it, or if the rest of it shows that it was complete. Pure.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::expr::Expr;
use super::image::{Body, Chain, Image, Table, TableFamily, TableId, is_own};
use super::live::{Live, LiveChain, LiveTable};
use super::mismatch::{Mismatch, MismatchKind};
use crate::rules::Family;

/// Returns the interruptions of one family's traffic. `always` has the rules that every setting needs.
pub(super) fn find(wanted: &Image<'_>, always: &Image<'_>, family: Family, live: &Live) -> Vec<Mismatch> {
    let mut found = Vec::new();
    for table in wanted.tables.iter().filter(|table| covers(table.id, family)) {
        let there = live.tables.iter().find(|live| live.id.name == table.id.name && covers(live.id, family));
        let always = always.tables.iter().find(|always| always.id == table.id);
        found.extend(there.filter(|live| live.dormant).map(|live| Mismatch::new(live.id, "", MismatchKind::Dormant)));
        found.extend(missing_jumps(table, always, there));
        found.extend(there.into_iter().flat_map(|live| idle_chains(table, live)));
    }
    found
}

/// Whether a table applies to packets of a family.
fn covers(table: TableId, family: Family) -> bool {
    [TableFamily::Inet, family.into()].contains(&table.family)
}

/// Finds desired jumps from a hook to a redirecting chain that the kernel lacks.
fn missing_jumps(wanted: &Table<'_>, always: Option<&Table<'_>>, live: Option<&LiveTable>) -> Vec<Mismatch> {
    let (desired, observed) = (Bodies::of_wanted(wanted), live.map(Bodies::of_live));
    let mut found = Vec::new();
    for hook in wanted.chains.iter().filter(|chain| is_hook(wanted.id, chain)) {
        let is_present = |to: &str| live.is_some_and(|live| entrances(live, hook).any(|chain| jumps(chain, to)));
        let is_always = |to: &str| {
            let same = always.into_iter().flat_map(|table| &table.chains).find(|chain| chain.name == hook.name);
            same.is_some_and(|chain| targets(chain).any(|target| target == to))
        };
        let was_complete = |to: &str| observed.as_ref().is_some_and(|observed| observed.reach_redirect(to));
        let jumped: BTreeSet<&str> = targets(hook).filter(|to| desired.reach_redirect(to)).collect();
        for to in jumped.into_iter().filter(|to| !is_present(to) && (is_always(to) || was_complete(to))) {
            found.push(Mismatch::new(wanted.id, hook.name, MismatchKind::NoJump { to: to.to_owned() }));
        }
    }
    found
}

/// Finds chains to which a rule jumps in the kernel, and which redirect nothing there, although they should.
fn idle_chains(wanted: &Table<'_>, live: &LiveTable) -> Vec<Mismatch> {
    let (desired, observed) = (Bodies::of_wanted(wanted), Bodies::of_live(live));
    let is_idle = |chain: &&Chain<'_>| {
        let is_jumped_to = live.chains.iter().any(|from| jumps(from, chain.name));
        let redirects_itself = chain.rules.iter().any(|rule| redirects(&rule.body));
        let redirects_live = match redirects_itself {
            true => observed.rules(chain.name).any(redirects),
            false => observed.reach_redirect(chain.name),
        };
        is_jumped_to && !redirects_live && desired.reach_redirect(chain.name)
    };
    let idle = wanted.chains.iter().filter(|chain| is_own(wanted.id, chain.name)).filter(is_idle);
    idle.map(|chain| Mismatch::new(wanted.id, chain.name, MismatchKind::Idle)).collect()
}

/// Whether packets enter the table through the chain. Chains of iptables-legacy have no hook here.
fn is_hook(table: TableId, chain: &Chain<'_>) -> bool {
    chain.hook.is_some() || !is_own(table, chain.name)
}

/// The live chains of the same hook. Other programs and versions name their chains differently.
fn entrances<'l>(live: &'l LiveTable, wanted: &Chain<'_>) -> impl Iterator<Item = &'l LiveChain> {
    let (name, number) = (wanted.name, wanted.hook.map(|hook| hook.number));
    live.chains.iter().filter(move |chain| match (&chain.hook, number) {
        (Some(hook), Some(number)) => hook.number == number,
        (None, None) => chain.name == name,
        _ => false,
    })
}

fn targets<'c>(chain: &'c Chain<'_>) -> impl Iterator<Item = &'c str> {
    chain.rules.iter().filter_map(|rule| rule.body.jumps_to())
}

fn jumps(chain: &LiveChain, to: &str) -> bool {
    chain.rules.iter().any(|rule| rule.body.jumps_to() == Some(to))
}

/// Whether the rule passes packets to the proxy.
fn redirects(body: &Body) -> bool {
    const TARGETS: [&str; 3] = ["REDIRECT", "TPROXY", "DNAT"];
    match body {
        Body::Saved(_) => body.jumps_to().is_some_and(|target| TARGETS.contains(&target)),
        Body::Exprs(exprs) => exprs.iter().any(|expr| match expr {
            Expr::Redirect | Expr::Tproxy(_) => true,
            Expr::Target(xt) => TARGETS.contains(&&*xt.name),
            Expr::Other { name, .. } => ["redir", "tproxy", "nat"].contains(&name.as_str()),
            _ => false,
        }),
    }
}

/// Whether the rule assigns packets to a transparent socket.
fn assigns(body: &Body) -> bool {
    match body {
        Body::Saved(_) => body.jumps_to() == Some("TPROXY"),
        Body::Exprs(exprs) => exprs.iter().any(|expr| match expr {
            Expr::Tproxy(_) => true,
            Expr::Target(xt) => xt.name == "TPROXY",
            Expr::Other { name, .. } => name == "tproxy",
            _ => false,
        }),
    }
}

impl Live {
    /// Whether one of Istio's chains assigns packets to transparent sockets, which needs routes.
    pub fn uses_tproxy(&self) -> bool {
        let own = self.tables.iter().flat_map(|t| t.chains.iter().filter(|chain| is_own(t.id, &chain.name)));
        own.flat_map(|chain| &chain.rules).any(|rule| assigns(&rule.body))
    }
}

/// The rules of each chain of a table, desired or observed. A pod may have any number of chains.
struct Bodies<'a>(HashMap<&'a str, Vec<&'a Body>>);

impl<'a> Bodies<'a> {
    fn of_wanted(table: &'a Table<'_>) -> Self {
        let bodies = |chain: &'a Chain<'_>| chain.rules.iter().map(|rule| &rule.body).collect();
        Self(table.chains.iter().map(|chain| (chain.name, bodies(chain))).collect())
    }

    fn of_live(table: &'a LiveTable) -> Self {
        let bodies = |chain: &'a LiveChain| chain.rules.iter().map(|rule| &rule.body).collect();
        Self(table.chains.iter().map(|chain| (chain.name.as_str(), bodies(chain))).collect())
    }

    fn rules(&self, chain: &str) -> impl Iterator<Item = &'a Body> {
        self.0.get(chain).map(Vec::as_slice).unwrap_or_default().iter().copied()
    }

    /// Whether a packet in the chain can reach a rule that redirects it.
    fn reach_redirect(&self, chain: &str) -> bool {
        let (mut seen, mut next) = (HashSet::new(), vec![chain]);
        while let Some(chain) = next.pop() {
            if !seen.insert(chain) {
                continue;
            }
            for body in self.rules(chain) {
                if redirects(body) {
                    return true;
                }
                next.extend(body.jumps_to());
            }
        }
        false
    }
}
