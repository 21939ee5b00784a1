//! Formats rules as nft text: the input of `nft -f -` in Istio's native nftables mode.
//!
//! For dry runs and comparisons with Istio. Tables have family `inet` for both families: a rule without address is
//! written once, a rule with one as an IPv4 and an IPv6 variant, in this order. A jump that only one family needs is
//! written for both; the chain's rules contain addresses of that family only.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ipnet::IpNet;

use crate::redirect::{Port, fmt_net};
use crate::rules::{At, Chain, CtStates, Families, Match, Proto, Rule, RuleSet, Table, Target};

/// Istio's tables with their chains, in Istio's order.
pub(super) const TABLES: [(Table, &[Chain]); 3] = [
    (
        Table::Nat,
        &[
            Chain::Prerouting,
            Chain::Output,
            Chain::IstioInbound,
            Chain::IstioRedirect,
            Chain::IstioInRedirect,
            Chain::IstioOutput,
            Chain::IstioOutputDns,
        ],
    ),
    (
        Table::Mangle,
        &[
            Chain::Prerouting,
            Chain::Output,
            Chain::IstioDivert,
            Chain::IstioTproxy,
            Chain::IstioInbound,
            Chain::IstioDrop,
        ],
    ),
    (Table::Raw, &[Chain::Prerouting, Chain::Output, Chain::IstioInbound, Chain::IstioOutputDns]),
];

/// Formats one transaction after which Istio's tables hold exactly these rules.
pub fn render(rules: &RuleSet) -> String {
    let chains = rules.merged_chains();
    let mut text = String::new();
    for (table, declared) in TABLES {
        let mut own = declared.iter().filter(|c| chains.contains_key(&(table, **c))).peekable();
        if own.peek().is_none() {
            continue;
        }
        let name = table_name(table);
        let _ = writeln!(text, "add table inet {name}\nflush table inet {name}");
        for chain in own {
            let hook = hook(table, *chain).map(|h| format!(" {{ {h} ; }}")).unwrap_or_default();
            let _ = writeln!(text, "add chain inet {name} {}{hook}", chain_name(*chain));
        }
        let mut lengths = BTreeMap::new();
        for rule in rules.merged().filter(|r| r.table == table) {
            let len: &mut usize = lengths.entry(rule.chain).or_default();
            let _ = writeln!(text, "{}", line(rule, *len));
            *len += 1;
        }
    }
    text
}

/// The table's name in family `inet`.
pub fn table_name(table: Table) -> &'static str {
    match table {
        Table::Mangle => "istio-proxy-mangle",
        Table::Nat => "istio-proxy-nat",
        Table::Raw => "istio-proxy-raw",
    }
}

/// The chain's name; built-in chains map to base chains of Istio's own tables.
pub fn chain_name(chain: Chain) -> &'static str {
    match chain {
        Chain::Prerouting => "prerouting",
        Chain::Output => "output",
        Chain::IstioInbound => "istio-inbound",
        Chain::IstioRedirect => "istio-redirect",
        Chain::IstioInRedirect => "istio-in-redirect",
        Chain::IstioOutput => "istio-output",
        Chain::IstioOutputDns => "istio-output-dns",
        Chain::IstioDivert => "istio-divert",
        Chain::IstioTproxy => "istio-tproxy",
        Chain::IstioDrop => "istio-drop",
    }
}

/// The hook of a base chain; none for other chains.
fn hook(table: Table, chain: Chain) -> Option<String> {
    let hook = match chain {
        Chain::Prerouting => "prerouting",
        Chain::Output => "output",
        _ => return None,
    };
    let kind = match (table, chain) {
        (Table::Nat, _) => "nat",
        // A changed mark must change the route of outbound packets.
        (Table::Mangle, Chain::Output) => "route",
        _ => "filter",
    };
    let priority = match table {
        Table::Nat => -100,
        Table::Mangle => -150,
        Table::Raw => -300,
    };
    Some(format!("type {kind} hook {hook} priority {priority}"))
}

/// Formats a rule; `len` is the chain's current length, because nft inserts only before an existing rule.
fn line(rule: &Rule, len: usize) -> String {
    let place = format!("inet {} {}", table_name(rule.table), chain_name(rule.chain));
    let mut words = vec![match (rule.at, rule.at.index(len)) {
        (At::Place(_), index) if index < len => format!("insert rule {place} index {index}"),
        _ => format!("add rule {place}"),
    }];
    let mut matches: Vec<&Match> = rule.matches.iter().collect();
    matches.sort_by_key(|m| rank(m, rule.table));
    words.extend(matches.iter().filter_map(|m| match_text(m, rule)));
    words.push(target_text(rule));
    words.join(" ")
}

/// The order of matches in Istio's native text; in raw, ports precede addresses.
pub(super) fn rank(m: &Match, table: Table) -> u8 {
    match m {
        Match::InInterface(_) | Match::OutInterface(_) => 0,
        Match::Protocol(_) => 1,
        Match::Source(_) | Match::Destination { .. } if table == Table::Raw => 4,
        Match::Source(_) | Match::Destination { .. } | Match::CtState(_) => 2,
        Match::DestinationPort { .. } | Match::NotDestinationPorts(_) | Match::SourcePort(_) => 3,
        Match::Mark { .. } | Match::ConnMark(_) => 5,
        Match::Uid { .. } | Match::Gid { .. } => 6,
    }
}

/// Returns none for a protocol that is not written.
fn match_text(m: &Match, rule: &Rule) -> Option<String> {
    let not = |negated: bool| if negated { "!= " } else { "" };
    let proto = rule.protocol().map_or("tcp", Proto::as_str);
    // Istio qualifies owners in raw; nft reads both forms alike.
    let meta = if rule.table == Table::Raw { "meta " } else { "" };
    Some(match m {
        Match::InInterface(nic) => format!("iifname {nic}"),
        Match::OutInterface(nic) => format!("oifname {nic}"),
        Match::Source(net) => format!("{} saddr {}", family(net), fmt_net(net)),
        Match::Destination { net, negated } => format!("{} daddr {}{}", family(net), not(*negated), fmt_net(net)),
        Match::Protocol(_) if !spells_protocol(rule) => return None,
        Match::Protocol(_) => format!("meta l4proto {proto}"),
        Match::DestinationPort { port, negated } => format!("{proto} dport {}{port}", not(*negated)),
        Match::NotDestinationPorts(ports) => {
            let ports: Vec<String> = ports.iter().map(Port::to_string).collect();
            format!("{proto} dport != {{ {} }}", ports.join(", "))
        }
        Match::SourcePort(port) => format!("{proto} sport {port}"),
        Match::Uid { owner, negated } => format!("{meta}skuid {}{owner}", not(*negated)),
        Match::Gid { owner, negated } => format!("{meta}skgid {}{owner}", not(*negated)),
        // Unlike its iptables mode, Istio's native mode drops only invalid TCP packets.
        Match::CtState(CtStates::Invalid) => "meta l4proto tcp ct state invalid".to_owned(),
        Match::CtState(CtStates::RelatedEstablished) => "ct state related,established".to_owned(),
        Match::Mark { mark, negated } => format!("mark {}{mark}", not(*negated)),
        Match::ConnMark(mark) => format!("ct mark {mark}"),
    })
}

/// Whether Istio writes the protocol although the port implies it: always, except in DNS rules and in outbound rules
/// that match only a port.
pub(super) fn spells_protocol(rule: &Rule) -> bool {
    let dns = rule.table == Table::Raw || rule.chain == Chain::IstioOutputDns;
    let port_alone = matches!(rule.matches[..], [Match::Protocol(_), Match::DestinationPort { .. }]);
    !(dns || rule.chain == Chain::IstioOutput && port_alone)
}

fn family(net: &IpNet) -> &'static str {
    match net {
        IpNet::V4(_) => "ip",
        IpNet::V6(_) => "ip6",
    }
}

/// Formats the verdict with the counter that all Istio rules have.
fn target_text(rule: &Rule) -> String {
    match &rule.target {
        Target::Return => "counter return".to_owned(),
        Target::Accept => "counter accept".to_owned(),
        Target::Drop => "counter drop".to_owned(),
        Target::Jump(chain) => format!("counter jump {}", chain_name(*chain)),
        Target::RedirectTo(port) => format!("counter redirect to :{port}"),
        Target::Tproxy { port, mark } => {
            let family = match rule.families {
                Families::V4 => "ip ",
                Families::V6 => "ip6 ",
                Families::Both => "",
            };
            format!("tproxy {family}to :{port} meta mark set {mark} counter accept")
        }
        Target::SetMark(mark) => format!("counter meta mark set {mark}"),
        Target::SaveMark => "counter ct mark set mark".to_owned(),
        Target::RestoreMark => "counter meta mark set ct mark".to_owned(),
        Target::CtZone(zone) => format!("counter ct zone set {zone}"),
    }
}
