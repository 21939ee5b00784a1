//! Rules that do not depend on selectors: exempt interfaces, invalid packets, and the redirecting chains.
//!
//! They precede all others, because the first matching rule of a chain applies.

use crate::istio;
use ruleset::{At, Chain, CtStates, Match, Rule, Table, Target};

use crate::{InterceptionMode, Redirect};

/// Returns the rules that precede inbound and outbound rules.
pub(super) fn rules(redirect: &Redirect) -> Vec<Rule> {
    let mut rules = exempt_interfaces(redirect);
    // Packets from a virtual machine arrive in PREROUTING but are not inbound traffic. The jumps for redirected
    // destinations are later inserted before these rules.
    let exempt = |v| Rule::new(Table::Nat, Chain::PREROUTING, [Match::InInterface(v)], Target::Return).at(At::Place(1));
    rules.extend(redirect.virtual_interfaces.iter().cloned().map(exempt));
    if redirect.drop_invalid {
        let invalid = [Match::CtState(CtStates::Invalid)];
        rules.push(Rule::new(Table::Mangle, Chain::PREROUTING, invalid, Target::Jump(istio::DROP)));
        rules.push(Rule::new(Table::Mangle, istio::DROP, [], Target::Drop));
    }
    rules.extend(redirecting_chains(redirect));
    rules
}

fn exempt_interfaces(redirect: &Redirect) -> Vec<Rule> {
    // TPROXY mode captures inbound traffic in mangle, which a RETURN in nat does not prevent.
    let tables: &[Table] = match redirect.mode {
        InterceptionMode::Redirect => &[Table::Nat],
        InterceptionMode::Tproxy => &[Table::Nat, Table::Mangle],
    };
    let mut rules = Vec::new();
    for nic in &redirect.exclude_interfaces {
        for table in tables {
            let arriving = [Match::InInterface(nic.clone())];
            let leaving = [Match::OutInterface(nic.clone())];
            rules.push(Rule::new(*table, Chain::PREROUTING, arriving, Target::Return));
            rules.push(Rule::new(*table, Chain::OUTPUT, leaving, Target::Return));
        }
    }
    rules
}

fn redirecting_chains(redirect: &Redirect) -> [Rule; 3] {
    let tunnel = [Match::tcp(), Match::port(redirect.inbound_tunnel_port)];
    let to_outbound = Target::RedirectTo(redirect.proxy_port);
    let to_inbound = Target::RedirectTo(redirect.inbound_capture_port);
    [
        // HBONE is not redirected, because its clients connect directly to the proxy's HBONE port.
        Rule::new(Table::Nat, istio::INBOUND, tunnel, Target::Return),
        Rule::new(Table::Nat, istio::REDIRECT, [Match::tcp()], to_outbound),
        Rule::new(Table::Nat, istio::IN_REDIRECT, [Match::tcp()], to_inbound),
    ]
}
