//! Removes everything from a netns that [`apply`](super::apply) may have added.

use netfilter::{self, Backend, KernelFacts, Live, Session};
use ruleset::{Desired, Ipv6, Owned};

use super::retry::retry_on_contention;
use super::{Difference, Error, apply_plan};
use crate::netns::routes;

/// The extent of a [`cleanup`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleanup {
    /// Rules of every backend, routes and addresses are removed.
    Complete,
    /// The netns has tables of iptables-legacy, whose programs are not installed: rules in those tables stay. None of
    /// them is `mangle`, so no rule of TPROXY stays. Everything else is removed.
    LegacyUnread,
    /// As [`Cleanup::LegacyUnread`], but one of the tables is `mangle`: the routes stay, because rules of TPROXY that
    /// may be in that table send packets to these routes.
    MangleUnread,
}

impl Cleanup {
    fn of(facts: &KernelFacts, mangle_in_use: bool) -> Self {
        match (facts.legacy_in_use, facts.legacy_programs || facts.plain_programs) {
            (false, _) | (_, true) => Self::Complete,
            (true, false) if mangle_in_use => Self::MangleUnread,
            (true, false) => Self::LegacyUnread,
        }
    }
}

/// Removes everything that [`apply`](super::apply) may have added, with any backend whose tables can be read. Also deletes
/// empty built-in chains that [`apply`](super::apply) uses, whichever program added them.
pub fn cleanup(desired: &Desired, owned: &'static Owned) -> Result<Cleanup, Error> {
    let facts = netfilter::probe()?;
    let extent = Cleanup::of(&facts, netfilter::legacy_mangle_in_use()?);
    let nft = [Backend::IptablesNft, Backend::NativeFallback].into_iter().filter(|_| facts.nf_tables);
    let is_readable = facts.legacy_in_use && extent == Cleanup::Complete;
    let mut backends = nft.chain(is_readable.then_some(Backend::IptablesLegacy));
    backends.try_for_each(|backend| remove(desired, backend, owned))?;
    if extent != Cleanup::MangleUnread {
        routes::remove(desired.routes.former)?;
    }
    Ok(extent)
}

/// Removes the routing rules and routes that earlier settings needed and `desired` does not, in both families; `ipv6` is
/// whether the rules cover IPv6. Routing rules that have only the mark or only the table in common stay.
pub(super) fn remove_unwanted_routes(desired: &Desired, ipv6: bool) -> Result<Vec<Difference>, Error> {
    // IPv6 routes are needed again if `lo` regains IPv6.
    if matches!(desired.ipv6, Ipv6::OfLoopback { .. }) {
        return Ok(Vec::new());
    }
    let removed = routes::remove_beyond(desired.routes.former, desired.routes.intended, ipv6)?;
    Ok(removed.into_iter().map(Difference::Unwanted).collect())
}

/// Removes a backend's rules.
pub(super) fn remove(desired: &Desired, backend: Backend, owned: &'static Owned) -> Result<(), Error> {
    let former = &desired.rules.former;
    let mut session = Session::new(backend, owned);
    retry_on_contention(|| {
        let live = session.observe()?;
        let is_done = |live: &Live| Ok(netfilter::removal(former, live)?.is_empty());
        apply_plan(&mut session, &netfilter::removal(former, &live)?, &live, is_done).map(drop)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_stay_if_no_program_can_read_an_existing_mangle_table() {
        let facts = |legacy_in_use, legacy_programs, plain_programs| {
            let nf_tables = true;
            KernelFacts { legacy_in_use, legacy_programs, plain_programs, nf_tables, ..KernelFacts::default() }
        };
        for (facts, mangle, expected) in [
            (facts(false, false, false), false, Cleanup::Complete),
            (facts(true, true, false), true, Cleanup::Complete),
            (facts(true, false, true), true, Cleanup::Complete),
            (facts(true, false, false), false, Cleanup::LegacyUnread),
            (facts(true, false, false), true, Cleanup::MangleUnread),
        ] {
            assert_eq!(Cleanup::of(&facts, mangle), expected, "{facts:?} {mangle}");
        }
    }
}
