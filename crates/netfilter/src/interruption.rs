//! Finds the places at which traffic no longer reaches a redirecting rule: a hook without a path to a redirecting own
//! chain, and an own chain that no longer redirects.
//!
//! The pod's settings may have changed since its rules were added, and another version or program may have added them. A
//! missing path is therefore reported only if any settings require it, or if the chain at its end shows that it existed.
//! The chains between the hook and that chain do not matter. Pure.

use std::collections::{BTreeSet, HashMap, HashSet};

use ruleset::{Family, Owned};

use super::difference::{Difference, DifferenceKind};
use super::expr::Expr;
use super::image::{Body, Chain, Image, PREROUTING, Table, TableFamily, TableId};
use super::live::{Live, LiveChain, LiveTable, names_family};
use super::wire;

/// Returns the interruptions of one family's traffic. `always` holds the rules that any settings of the pod require.
pub(super) fn find(wanted: &Image<'_>, always: &Image<'_>, family: Family, live: &Live) -> Vec<Difference> {
    let mut found = Vec::new();
    for table in wanted.tables.iter().filter(|table| covers(table.id, family)) {
        let there = live.tables.iter().find(|live| live.id.name == table.id.name && covers(live.id, family));
        let always = always.tables.iter().find(|always| always.id == table.id);
        let pair = Pair {
            owned: live.owned,
            wanted: table,
            desired: Graph::of_wanted(table, family),
            live: there,
            observed: there.map(|live| Graph::of_live(live, family)).unwrap_or_default(),
        };
        found.extend(pair.dormant());
        found.extend(pair.missing_jumps(always));
        found.extend(pair.idle_chains());
    }
    found
}

/// Whether a table applies to packets of a family.
fn covers(table: TableId, family: Family) -> bool {
    [TableFamily::Inet, family.into()].contains(&table.family)
}

/// A desired table and the observed one of the same name, with their rules for one family.
struct Pair<'a> {
    owned: &'a Owned,
    wanted: &'a Table<'a>,
    desired: Graph<'a>,
    live: Option<&'a LiveTable>,
    observed: Graph<'a>,
}

impl<'a> Pair<'a> {
    /// Returns a difference if the kernel skips the table although the table should redirect.
    fn dormant(&self) -> Option<Difference> {
        let live = self.live.filter(|live| live.dormant)?;
        let redirects = self.wanted.chains.iter().any(|chain| self.desired.redirects(chain.name));
        redirects.then(|| Difference::new(live.id, "", DifferenceKind::Dormant))
    }

    /// Whether packets enter the table through the chain. Chains of iptables-legacy have no hook here.
    fn is_hook(&self, chain: &Chain<'_>) -> bool {
        chain.hook.is_some() || !self.wanted.id.owns(chain.name, self.owned)
    }

    /// Finds redirecting chains that packets no longer reach from a hook.
    fn missing_jumps(&self, always: Option<&Table<'_>>) -> Vec<Difference> {
        let mut found = Vec::new();
        for hook in self.wanted.chains.iter().filter(|chain| self.is_hook(chain)) {
            let entrances = self.live.into_iter().flat_map(|live| entrances(live, hook));
            let reached = self.observed.reach(entrances.map(|chain| chain.name.as_str()));
            let is_always = |to: &str| {
                let same = always.into_iter().flat_map(|table| &table.chains).find(|chain| chain.name == hook.name);
                same.is_some_and(|chain| chain.rules.iter().any(|rule| rule.body.jumps_to() == Some(to)))
            };
            let jumped: BTreeSet<&str> = self.desired.next(hook.name).filter(|to| self.desired.reaches(to)).collect();
            for to in jumped.into_iter().filter(|to| is_always(to) || self.was_reached(to)) {
                if !self.is_reached(to, &reached) {
                    found.push(Difference::new(
                        self.wanted.id,
                        hook.name,
                        DifferenceKind::NoJump { to: to.to_owned() },
                    ));
                }
            }
        }
        found
    }

    /// Whether `reached` includes the chain `to` or, if the netns has no such chain, an own chain that redirects in its place.
    fn is_reached(&self, to: &str, reached: &Reached<'_>) -> bool {
        match reached {
            Reached::All => true,
            Reached::Chains(chains) if self.observed.has(to) => chains.contains(to),
            Reached::Chains(chains) => {
                let intended = self.desired.reach([to]);
                let replaces = |chain: &str| !self.desired.has(chain) || intended.contains(chain);
                chains.iter().any(|chain| {
                    self.wanted.id.owns(chain, self.owned) && replaces(chain) && self.observed.redirects(chain)
                })
            }
        }
    }

    /// Whether the chain shows that packets once reached it: it leads to a redirecting rule, but no rule leads to it. A chain
    /// that holds the redirecting rule itself exists with any settings, and therefore shows nothing.
    fn was_reached(&self, to: &str) -> bool {
        self.observed.reaches(to) && !self.observed.is_led_to(to) && !self.desired.is_last(to)
    }

    /// Finds own chains that a rule leads to but that redirect nothing, although they should.
    fn idle_chains(&self) -> Vec<Difference> {
        let is_idle = |chain: &&Chain<'_>| {
            let redirects_live = match self.desired.is_last(chain.name) {
                true => self.observed.redirects(chain.name),
                false => self.observed.reaches(chain.name),
            };
            self.observed.led_to.contains(chain.name) && !redirects_live && self.desired.reaches(chain.name)
        };
        let own = self.wanted.chains.iter().filter(|chain| self.wanted.id.owns(chain.name, self.owned));
        own.filter(is_idle).map(|chain| Difference::new(self.wanted.id, chain.name, DifferenceKind::Idle)).collect()
    }
}

/// Returns the live chains at the hook of the `wanted` chain, whose names may differ: another program may have added them.
fn entrances<'l>(live: &'l LiveTable, wanted: &Chain<'_>) -> impl Iterator<Item = &'l LiveChain> {
    let (name, number) = (wanted.name, wanted.hook.map(|hook| hook.number));
    live.chains.iter().filter(move |chain| match (&chain.hook, number) {
        (Some(hook), Some(number)) => hook.number == number,
        (None, None) => chain.name == name,
        _ => false,
    })
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
    /// Whether an own chain assigns packets to transparent sockets, which needs routes.
    pub fn uses_tproxy(&self) -> bool {
        let own = self.tables.iter().flat_map(|t| t.chains.iter().filter(|chain| t.id.owns(&chain.name, self.owned)));
        own.flat_map(|chain| &chain.rules).any(|rule| assigns(&rule.body))
    }

    /// Whether packets of a family that enter the netns can reach a rule that redirects them.
    pub fn redirects_inbound(&self, family: Family) -> bool {
        let is_entrance = |chain: &&LiveChain| match &chain.hook {
            Some(hook) => hook.number == PREROUTING,
            None => chain.name == "PREROUTING",
        };
        self.tables.iter().filter(|table| covers(table.id, family)).any(|table| {
            let observed = Graph::of_live(table, family);
            table.chains.iter().filter(is_entrance).any(|chain| observed.reaches(&chain.name))
        })
    }
}

/// The rules for one family in a desired or observed table. Hashed, because a pod may have any number of chains.
#[derive(Default)]
struct Graph<'a> {
    rules: HashMap<&'a str, Vec<&'a Body>>,
    /// The chains to which a rule leads.
    led_to: HashSet<&'a str>,
    /// Whether a rule takes its verdict from a map, which may lead to any chain.
    has_map: bool,
}

/// The chains that packets can reach.
enum Reached<'a> {
    /// Any chain, because a map decides.
    All,
    Chains(HashSet<&'a str>),
}

impl Reached<'_> {
    fn contains(&self, chain: &str) -> bool {
        match self {
            Self::All => true,
            Self::Chains(chains) => chains.contains(chain),
        }
    }
}

impl<'a> Graph<'a> {
    fn of_wanted(table: &'a Table<'_>, family: Family) -> Self {
        let bodies = |chain: &'a Chain<'_>| chain.rules.iter().map(|rule| &rule.body).collect();
        Self::new(table.chains.iter().map(|chain| (chain.name, bodies(chain))), family)
    }

    fn of_live(table: &'a LiveTable, family: Family) -> Self {
        let bodies = |chain: &'a LiveChain| chain.rules.iter().map(|rule| &rule.body).collect();
        Self::new(table.chains.iter().map(|chain| (chain.name.as_str(), bodies(chain))), family)
    }

    fn new(chains: impl Iterator<Item = (&'a str, Vec<&'a Body>)>, family: Family) -> Self {
        let other = match family {
            Family::V4 => TableFamily::Ip6,
            Family::V6 => TableFamily::Ip,
        };
        let mut graph = Self::default();
        for (name, mut bodies) in chains {
            bodies.retain(|body| !names_family(body, other));
            graph.led_to.extend(bodies.iter().filter_map(|body| body.jumps_to()));
            graph.has_map |= bodies.iter().any(|body| is_map(body));
            graph.rules.insert(name, bodies);
        }
        graph
    }

    fn has(&self, chain: &str) -> bool {
        self.rules.contains_key(chain)
    }

    fn is_led_to(&self, chain: &str) -> bool {
        self.has_map || self.led_to.contains(chain)
    }

    fn bodies(&self, chain: &str) -> &[&'a Body] {
        self.rules.get(chain).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the chains to which the chain's rules lead.
    fn next(&self, chain: &str) -> impl Iterator<Item = &'a str> {
        self.bodies(chain).iter().filter_map(|body| body.jumps_to())
    }

    /// Whether a rule of the chain redirects.
    fn redirects(&self, chain: &str) -> bool {
        self.bodies(chain).iter().any(|body| redirects(body))
    }

    /// Whether the chain has the redirecting rule itself, and leads to no other chain.
    fn is_last(&self, chain: &str) -> bool {
        self.redirects(chain) && !self.next(chain).any(|next| self.has(next))
    }

    /// Whether a packet in the chain can reach a rule that redirects it.
    fn reaches(&self, chain: &str) -> bool {
        match self.reach([chain]) {
            Reached::All => true,
            Reached::Chains(chains) => chains.iter().any(|chain| self.redirects(chain)),
        }
    }

    /// Returns these chains and all chains that packets in them can reach.
    fn reach<'c>(&self, from: impl IntoIterator<Item = &'c str>) -> Reached<'c>
    where
        'a: 'c,
    {
        let (mut seen, mut next) = (HashSet::new(), from.into_iter().collect::<Vec<&'c str>>());
        while let Some(chain) = next.pop() {
            if !seen.insert(chain) {
                continue;
            }
            if self.bodies(chain).iter().any(|body| is_map(body)) {
                return Reached::All;
            }
            next.extend(self.next(chain));
        }
        Reached::Chains(seen)
    }
}

/// Whether the rule's verdict is from a map, whose elements are not read.
fn is_map(body: &Body) -> bool {
    body.exprs().iter().any(wire::is_verdict_map)
}
