//! Rules of transparent proxying: marks by which policy routing delivers inbound connections to the local listener, and
//! the return path of the proxy's own loopback traffic.

use crate::istio;
use ruleset::{At, Chain, Interface, Match, Rule, Table, Target};

use super::parts::{loopback, passthrough, per_family, proxy_owners};
use crate::{PortSelector, Redirect};

/// Returns the rules of the chains that inbound rules jump to; none if no port is selected.
pub(super) fn chains(redirect: &Redirect) -> Vec<Rule> {
    if redirect.inbound_ports == PortSelector::None {
        return Vec::new();
    }
    let to_listener =
        Target::Tproxy { port: redirect.inbound_capture_port, mark: redirect.tproxy_mark, mask: u32::MAX };
    let take = |family| {
        let matches = [Match::not_to(loopback(redirect, family)), Match::tcp()];
        Rule::new(Table::Mangle, istio::TPROXY, matches, to_listener.clone())
    };
    let mut rules = vec![
        Rule::new(Table::Mangle, istio::DIVERT, [], Target::SetMark { mark: redirect.tproxy_mark, mask: u32::MAX }),
        Rule::new(Table::Mangle, istio::DIVERT, [], Target::Accept),
    ];
    rules.extend(per_family(take));
    rules
}

/// Returns the rules that mark connections, which are needed even if no inbound port is selected.
pub(super) fn marks(redirect: &Redirect) -> Vec<Rule> {
    let on_lo = || Match::OutInterface(Interface::lo());
    let marked = |negated, mark| Match::Mark { mark, mask: u32::MAX, negated };
    let mark = redirect.tproxy_mark;
    let mangle = |chain, matches: &[Match], target| Rule::new(Table::Mangle, chain, matches.to_vec(), target);
    let mut rules = vec![
        mangle(Chain::PREROUTING, &[Match::tcp(), marked(false, mark)], Target::SaveMark),
        mangle(Chain::OUTPUT, &[Match::tcp(), on_lo(), marked(false, mark)], Target::Return),
    ];
    for owner in proxy_owners(redirect) {
        // The proxy connects to the application over lo; this mark distinguishes it from the application's own
        // connections.
        let own = |family| {
            let matches = [Match::not_to(loopback(redirect, family)), Match::tcp(), on_lo(), owner.is()];
            mangle(Chain::OUTPUT, &matches, Target::SetMark { mark: contract::OUTBOUND_MARK, mask: u32::MAX })
        };
        rules.extend(per_family(own));
    }
    rules.push(mangle(
        Chain::OUTPUT,
        &[Match::tcp(), Match::ConnMark { mark, mask: u32::MAX, negated: false }],
        Target::RestoreMark,
    ));

    let from_lo = || Match::InInterface(Interface::lo());
    let first = |n, matches: &[Match]| mangle(istio::INBOUND, matches, Target::Return).at(At::Place(n));
    rules.push(first(1, &[Match::tcp(), marked(false, mark)]));
    rules.extend(per_family(|family| first(2, &[Match::tcp(), Match::Source(passthrough(family)), from_lo()])));
    rules.push(first(3, &[Match::tcp(), from_lo(), marked(true, contract::OUTBOUND_MARK)]));
    rules
}
