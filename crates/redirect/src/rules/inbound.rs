//! Rules that select the inbound connections to redirect.
//!
//! The rules are in nat, or with TPROXY, which preserves the client's address, in mangle.

use crate::istio;
use ruleset::{Chain, CtStates, Match, Port, Rule, Table, Target};

use crate::{InterceptionMode, PortSelector, Redirect};

/// Returns the rules of inbound interception; none if no port is selected.
pub(super) fn rules(redirect: &Redirect) -> Vec<Rule> {
    let table = match redirect.mode {
        InterceptionMode::Redirect => Table::Nat,
        InterceptionMode::Tproxy => Table::Mangle,
    };
    let selected = match &redirect.inbound_ports {
        PortSelector::None => return Vec::new(),
        PortSelector::All => all_but(table, redirect),
        // Exclusions apply to `*` only.
        PortSelector::List(ports) => ports.iter().flat_map(|port| capture(table, redirect.mode, Some(*port))).collect(),
    };
    let enter = Rule::new(table, Chain::PREROUTING, [Match::tcp()], Target::Jump(istio::INBOUND));
    std::iter::once(enter).chain(selected).collect()
}

fn all_but(table: Table, redirect: &Redirect) -> Vec<Rule> {
    let spare = |p: &Port| Rule::new(table, istio::INBOUND, [Match::tcp(), Match::port(*p)], Target::Return);
    let spared = redirect.inbound_ports_exclude.iter().map(spare);
    spared.chain(capture(table, redirect.mode, None)).collect()
}

/// Returns the rules that capture one port, or all remaining ports.
fn capture(table: Table, mode: InterceptionMode, port: Option<Port>) -> Vec<Rule> {
    let tcp: Vec<Match> = std::iter::once(Match::tcp()).chain(port.map(Match::port)).collect();
    let rule = |matches: Vec<Match>, to| Rule::new(table, istio::INBOUND, matches, Target::Jump(to));
    match mode {
        InterceptionMode::Redirect => vec![rule(tcp, istio::IN_REDIRECT)],
        InterceptionMode::Tproxy => {
            // Packets of existing connections already have a socket; marking them suffices to route them there.
            let mut known = tcp.clone();
            known.push(Match::CtState(CtStates::RelatedEstablished));
            vec![rule(known, istio::DIVERT), rule(tcp, istio::TPROXY)]
        }
    }
}
