//! Rules of transparent proxying: marks by which policy routing delivers inbound connections to the local listener, and
//! the return path of the proxy's own loopback traffic.

use ruleset::{At, Chain, Interface, Match, Rule, Table, Target};

use super::parts::{loopback, passthrough, per_family, proxy_owners};
use crate::{PortSelector, Redirect};

/// The chains that inbound rules jump to; none if no port is selected.
pub(super) fn chains(redirect: &Redirect) -> Vec<Rule> {
    if redirect.inbound_ports == PortSelector::None {
        return Vec::new();
    }
    let to_listener = Target::Tproxy { port: redirect.inbound_capture_port, mark: redirect.tproxy_mark };
    let take = |family| {
        let matches = [Match::not_to(loopback(redirect, family)), Match::tcp()];
        Rule::new(Table::Mangle, Chain::IstioTproxy, matches, to_listener.clone())
    };
    let mut rules = vec![
        Rule::new(Table::Mangle, Chain::IstioDivert, [], Target::SetMark(redirect.tproxy_mark)),
        Rule::new(Table::Mangle, Chain::IstioDivert, [], Target::Accept),
    ];
    rules.extend(per_family(take));
    rules
}

/// The rules that mark connections, needed even if no inbound port is selected.
pub(super) fn marks(redirect: &Redirect) -> Vec<Rule> {
    let on_lo = || Match::OutInterface(Interface::lo());
    let marked = |negated, mark| Match::Mark { mark, mask: u32::MAX, negated };
    let mark = redirect.tproxy_mark;
    let mangle = |chain, matches: &[Match], target| Rule::new(Table::Mangle, chain, matches.to_vec(), target);
    let mut rules = vec![
        mangle(Chain::Prerouting, &[Match::tcp(), marked(false, mark)], Target::SaveMark),
        mangle(Chain::Output, &[Match::tcp(), on_lo(), marked(false, mark)], Target::Return),
    ];
    for owner in proxy_owners(redirect) {
        // The proxy connects to the application over lo; this mark distinguishes it from the application's own
        // connections.
        let own = |family| {
            let matches = [Match::not_to(loopback(redirect, family)), Match::tcp(), on_lo(), owner.is()];
            mangle(Chain::Output, &matches, Target::SetMark(contract::OUTBOUND_MARK))
        };
        rules.extend(per_family(own));
    }
    rules.push(mangle(Chain::Output, &[Match::tcp(), Match::ConnMark { mark, mask: u32::MAX }], Target::RestoreMark));

    let from_lo = || Match::InInterface(Interface::lo());
    let first = |n, matches: &[Match]| mangle(Chain::IstioInbound, matches, Target::Return).at(At::Place(n));
    rules.push(first(1, &[Match::tcp(), marked(false, mark)]));
    rules.extend(per_family(|family| first(2, &[Match::tcp(), Match::Source(passthrough(family)), from_lo()])));
    rules.push(first(3, &[Match::tcp(), from_lo(), marked(true, contract::OUTBOUND_MARK)]));
    rules
}
