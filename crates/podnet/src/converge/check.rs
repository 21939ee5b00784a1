//! Compares a netns with its desired state, and distinguishes missing redirection from other differences.

use netfilter::{self, Live, Session};
use ruleset::{Desired, Family, Owned, Routes};

use super::facts::NetnsFacts;
use super::retry::retry_on_contention;
use super::view::{self, Comparison, Observation, View};
use super::{Difference, Error, Options, differences, fallbacks};
use crate::netns::loopback_has_ipv6;
use crate::netns::routes::{self, Entry};

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    /// Redirection that is missing, whatever the settings were when it was added.
    pub missing: Vec<Difference>,
    /// All differences from the desired state.
    pub differences: Vec<Difference>,
}

impl View {
    /// Compares the netns with its desired state, with the backend that [`View::apply`] would use.
    pub fn check(self, desired: &Desired) -> Result<Checked, Error> {
        let options = self.options;
        let (netns, mut observed) = self.for_pod(desired)?;
        retry_on_contention(|| examine(desired, &netns, &mut observed, options))
    }
}

fn examine(
    desired: &Desired,
    netns: &NetnsFacts,
    observed: &mut Observation,
    options: Options,
) -> Result<Checked, Error> {
    let presumed = observed.session.backend();
    let mut found = match view::compare(desired, netns, observed) {
        Err(error) if error.is_backend_specific() => fallbacks(&error, presumed, options)?
            .into_iter()
            .map(|backend| view::compare(desired, netns, &mut Observation::new(backend, options.owned)))
            .find(|compared| !matches!(compared, Err(error) if error.is_backend_specific()))
            .unwrap_or(Err(error))?,
        compared => compared?,
    };
    // If the presumed backend has no rules, compare with the rules of the backend that `apply` fell back to.
    if let (false, false, [fallback, ..]) = (options.is_chosen(), found.live.is_programmed(), &found.former[..]) {
        found = view::compare(desired, netns, &mut Observation::new(*fallback, options.owned))?;
    }
    let state = netfilter::diff(&found.rules, &found.live)?.state;
    view::confirm(&found.live, &state)?;
    let mut differences = differences(&state, &found.former);
    let bypasses = netfilter::bypasses(&found.rules, &found.live)?;
    differences.extend(bypasses.into_iter().map(Difference::Rule));
    let ipv6_routes = netns.needs_ipv6_routes(desired.ipv6, found.ipv6);
    differences.extend(routes::missing(desired.routes.intended, ipv6_routes)?.into_iter().map(Difference::Route));
    let missing = if differences.is_empty() { Vec::new() } else { missing(desired, netns, found, options.owned)? };
    Ok(Checked { missing, differences })
}

/// Finds missing redirection. A family is redirected if the rules of one backend are complete for it.
fn missing(
    desired: &Desired,
    netns: &NetnsFacts,
    found: Comparison,
    owned: &'static Owned,
) -> Result<Vec<Difference>, Error> {
    let former = found.former.iter().map(|backend| Session::new(*backend, owned).observe());
    let former = former.collect::<Result<Vec<Live>, _>>()?;
    let mut programmed: Vec<&Live> = std::iter::once(&found.live).chain(&former).collect();
    programmed.retain(|live| live.is_programmed());
    if programmed.is_empty() {
        // The rules may be in the tables that could not be read.
        return found.unread.map_or_else(|| Ok(vec![Difference::NoRules]), |error| Err(error.into()));
    }
    let always = desired.rules.always.covering(found.ipv6);
    let ipv6 = found.ipv6 && was_covered(desired, netns, &programmed)?;
    let mut missing = Vec::new();
    for family in families(ipv6) {
        let of = |live: &&Live| netfilter::interruptions(&found.rules, &always, family, live);
        let interrupted = programmed.iter().map(of).collect::<Result<Vec<_>, _>>()?;
        if let (false, Some(first)) = (interrupted.iter().any(Vec::is_empty), interrupted.into_iter().next()) {
            // A table of both families yields the same differences for each.
            let new = first.into_iter().map(Difference::Rule).filter(|rule| !missing.contains(rule));
            missing.extend(new.collect::<Vec<_>>());
        }
    }
    // The kernel deletes IPv6 routes if a pod disables IPv6.
    missing.extend(missing_routes(desired, ipv6 && loopback_has_ipv6(), &programmed)?);
    Ok(missing)
}

fn families(ipv6: bool) -> impl Iterator<Item = Family> {
    [Some(Family::V4), ipv6.then_some(Family::V6)].into_iter().flatten()
}

/// Whether IPv6 was redirected: an IPv6 address may have appeared after the rules were added.
fn was_covered(desired: &Desired, netns: &NetnsFacts, programmed: &[&Live]) -> Result<bool, Error> {
    if netns.only_ipv6 || programmed.iter().any(|live| live.holds_ipv6()) {
        return Ok(true);
    }
    Ok(routes::present(needed_routes(desired, false), true)?.contains(&Entry::Passthrough))
}

/// Returns the routes that live rules need; `marked` is whether these rules use TPROXY.
fn needed_routes(desired: &Desired, marked: bool) -> Routes {
    let routes = desired.routes.former;
    Routes { marked: routes.marked.filter(|_| marked || !desired.routes.of_tproxy), ..routes }
}

/// Finds missing routes that the rules need, and routing rules of TPROXY without the rules that they need.
fn missing_routes(desired: &Desired, ipv6: bool, programmed: &[&Live]) -> Result<Vec<Difference>, Error> {
    let marked = programmed.iter().any(|live| live.uses_tproxy());
    let mut missing: Vec<_> =
        routes::missing(needed_routes(desired, marked), ipv6)?.into_iter().map(Difference::Route).collect();
    if desired.routes.of_tproxy {
        let left = routes::present(desired.routes.former, ipv6)?;
        missing.extend(left.into_iter().filter(|entry| is_useless(*entry, programmed)).map(Difference::NoTproxy));
    }
    Ok(missing)
}

/// Whether the entry is a routing rule of TPROXY in a netns in which nothing redirects the family's inbound packets.
fn is_useless(entry: Entry, programmed: &[&Live]) -> bool {
    matches!(entry, Entry::Rule(family, _) if !programmed.iter().any(|live| live.redirects_inbound(family)))
}
