//! The part of the rules that no selector changes: exempt interfaces, invalid packets, and the chains that redirect.
//!
//! Comes first, for the rules of a chain are tried from first to last.

use super::ruleset::{At, Chain, CtStates, Match, Rule, Table, Target};
use crate::redirect::{InterceptionMode, Redirect};

/// Everything that comes before inbound and outbound rules.
pub(super) fn rules(redirect: &Redirect) -> Vec<Rule> {
    let mut rules = exempt_interfaces(redirect);
    // What a virtual machine sends arrives in PREROUTING and is no inbound traffic. Jumps for redirected destinations
    // are inserted before these later.
    let exempt = |v| Rule::new(Table::Nat, Chain::Prerouting, [Match::InInterface(v)], Target::Return).at(At::Place(1));
    rules.extend(redirect.virtual_interfaces.iter().cloned().map(exempt));
    if redirect.drop_invalid {
        let invalid = [Match::CtState(CtStates::Invalid)];
        rules.push(Rule::new(Table::Mangle, Chain::Prerouting, invalid, Target::Jump(Chain::IstioDrop)));
        rules.push(Rule::new(Table::Mangle, Chain::IstioDrop, [], Target::Drop));
    }
    rules.extend(redirecting_chains(redirect));
    rules
}

fn exempt_interfaces(redirect: &Redirect) -> Vec<Rule> {
    // In TPROXY mode inbound traffic is taken in mangle, which nat's RETURN does not stop.
    let tables: &[Table] = match redirect.mode {
        InterceptionMode::Redirect => &[Table::Nat],
        InterceptionMode::Tproxy => &[Table::Nat, Table::Mangle],
    };
    let mut rules = Vec::new();
    for nic in &redirect.exclude_interfaces {
        for table in tables {
            let arriving = [Match::InInterface(nic.clone())];
            let leaving = [Match::OutInterface(nic.clone())];
            rules.push(Rule::new(*table, Chain::Prerouting, arriving, Target::Return));
            rules.push(Rule::new(*table, Chain::Output, leaving, Target::Return));
        }
    }
    rules
}

fn redirecting_chains(redirect: &Redirect) -> [Rule; 3] {
    let tunnel = [Match::tcp(), Match::port(redirect.inbound_tunnel_port)];
    let to_outbound = Target::RedirectTo(redirect.proxy_port);
    let to_inbound = Target::RedirectTo(redirect.inbound_capture_port);
    [
        // HBONE arrives encrypted for the proxy itself.
        Rule::new(Table::Nat, Chain::IstioInbound, tunnel, Target::Return),
        Rule::new(Table::Nat, Chain::IstioRedirect, [Match::tcp()], to_outbound),
        Rule::new(Table::Nat, Chain::IstioInRedirect, [Match::tcp()], to_inbound),
    ]
}
