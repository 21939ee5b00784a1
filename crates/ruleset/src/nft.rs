//! Formats rules as nft text: the input of `nft -f -` in Istio's native nftables mode.
//!
//! For dry runs and comparisons with Istio. Tables have family `inet` for both families: a rule without address is
//! written once, a rule with one as an IPv4 and an IPv6 variant, in this order. A jump that only one family needs is
//! written for both; the chain's rules contain addresses of that family only.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ipnet::IpNet;

use crate::{At, Chain, CtStates, DataplaneMode, Families, Match, Proto, Rule, RuleSet, Table, Target};
use crate::{Port, fmt_addr, fmt_net};
use contract::port;

/// Istio's tables with their chains, in Istio's order.
pub fn tables(mode: DataplaneMode) -> [(Table, &'static [Chain]); 3] {
    const AMBIENT: &[Chain] = &[Chain::Prerouting, Chain::Output, Chain::IstioPrert, Chain::IstioOutput];
    match mode {
        DataplaneMode::Sidecar => SIDECAR,
        DataplaneMode::Ambient => [Table::Nat, Table::Mangle, Table::Raw].map(|table| (table, AMBIENT)),
    }
}

const SIDECAR: [(Table, &[Chain]); 3] = [
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
    for (table, declared) in tables(rules.mode) {
        let mut own = declared.iter().filter(|c| chains.contains_key(&(table, **c))).peekable();
        if own.peek().is_none() {
            continue;
        }
        let name = table_name(rules.mode, table);
        let _ = writeln!(text, "add table inet {name}\nflush table inet {name}");
        for chain in own {
            let hook = hook(table, *chain).map(|h| format!(" {{ {h} ; }}")).unwrap_or_default();
            let _ = writeln!(text, "add chain inet {name} {}{hook}", chain_name(*chain));
        }
        let mut lengths = BTreeMap::new();
        for rule in rules.merged().filter(|r| r.table == table) {
            let len: &mut usize = lengths.entry(rule.chain).or_default();
            let _ = writeln!(text, "{}", line(rule, rules.mode, *len));
            *len += 1;
        }
    }
    text
}

/// The table's name in family `inet`.
pub fn table_name(mode: DataplaneMode, table: Table) -> &'static str {
    match (mode, table) {
        (DataplaneMode::Sidecar, Table::Mangle) => "istio-proxy-mangle",
        (DataplaneMode::Sidecar, Table::Nat) => "istio-proxy-nat",
        (DataplaneMode::Sidecar, Table::Raw) => "istio-proxy-raw",
        (DataplaneMode::Ambient, Table::Mangle) => "istio-ambient-mangle",
        (DataplaneMode::Ambient, Table::Nat) => "istio-ambient-nat",
        (DataplaneMode::Ambient, Table::Raw) => "istio-ambient-raw",
    }
}

/// Returns the name and the kind of one of Istio's tables.
pub fn known_table(name: &str) -> Option<(&'static str, Table)> {
    let all = DataplaneMode::ALL.into_iter().flat_map(|mode| Table::ALL.map(|table| (table_name(mode, table), table)));
    all.into_iter().find(|(known, _)| *known == name)
}

/// Whether a pod's native tables have a chain of this name.
pub fn is_of_pod(mode: DataplaneMode, chain: &str) -> bool {
    tables(mode).iter().flat_map(|(_, chains)| *chains).any(|known| chain_name(*known) == chain)
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
        Chain::IstioPrert => "istio-prerouting",
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
        // The hook's type is `route`, because a changed mark must change the route of outbound packets.
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
fn line(rule: &Rule, mode: DataplaneMode, len: usize) -> String {
    let place = format!("inet {} {}", table_name(mode, rule.table), chain_name(rule.chain));
    let mut words = vec![match (rule.at, rule.at.index(len)) {
        (At::Place(_), index) if index < len => format!("insert rule {place} index {index}"),
        _ => format!("add rule {place}"),
    }];
    let mut matches: Vec<&Match> = rule.matches.iter().collect();
    matches.sort_by_key(|m| rank(m, rule.table, mode));
    words.extend(matches.iter().filter_map(|m| match_text(m, rule, mode)));
    words.push(target_text(rule, mode));
    words.join(" ")
}

/// The order of matches in Istio's native text; in raw, ports precede addresses. In ambient mode's nat, marks and ports
/// have the rule's order.
pub fn rank(m: &Match, table: Table, mode: DataplaneMode) -> u8 {
    match m {
        Match::InInterface(_) | Match::OutInterface(_) | Match::NotOutInterface(_) => 0,
        Match::Protocol(_) | Match::Extension(_) => 1,
        Match::Source(_) | Match::Destination { .. } if table == Table::Raw => 4,
        Match::Source(_) | Match::Destination { .. } | Match::CtState(_) => 2,
        Match::DestinationPort { .. } | Match::NotDestinationPorts(_) | Match::SourcePort(_) => 3,
        Match::Mark { .. } if mode == DataplaneMode::Ambient && table == Table::Nat => 3,
        Match::Mark { .. } | Match::ConnMark { .. } => 5,
        Match::Uid { .. } | Match::Gid { .. } => 6,
    }
}

/// Formats a match; returns none for a protocol that Istio does not write.
fn match_text(m: &Match, rule: &Rule, mode: DataplaneMode) -> Option<String> {
    let not = |negated: bool| if negated { "!= " } else { "" };
    let proto = rule.protocol().map_or("tcp", Proto::as_str);
    // Istio writes `meta` before `skuid` and `skgid` only in the table raw; nft reads both forms in the same way.
    let meta = if rule.table == Table::Raw { "meta " } else { "" };
    Some(match m {
        Match::InInterface(nic) => format!("iifname {nic}"),
        Match::OutInterface(nic) => format!("oifname {nic}"),
        Match::NotOutInterface(nic) => format!("oifname != {nic}"),
        Match::Source(net) => format!("{} saddr {}", family(net), address(net, mode)),
        Match::Destination { net, negated: false } => format!("{} daddr {}", family(net), address(net, mode)),
        Match::Destination { net, negated: true } => format!("{} daddr != {}", family(net), fmt_net(net)),
        Match::Extension(_) => return None,
        Match::Protocol(_) if !spells_protocol(rule, mode) => return None,
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
        Match::Mark { mark, mask: u32::MAX, negated } => format!("mark {}{mark}", not(*negated)),
        Match::Mark { mark, mask, negated } => {
            format!("{} {mask:#x} {} {mark:#x}", masked_mark(rule), if *negated { equal_not(rule) } else { "==" })
        }
        Match::ConnMark { mark, mask: u32::MAX } => format!("ct mark {mark}"),
        Match::ConnMark { mark, mask } => format!("ct mark and {mask:#x} == {mark:#x}"),
    })
}

/// Whether Istio writes the protocol although the port implies it: always, except in DNS rules and in outbound rules
/// that match only a port; in ambient mode in no rule that matches a port.
pub fn spells_protocol(rule: &Rule, mode: DataplaneMode) -> bool {
    if mode == DataplaneMode::Ambient {
        return !rule.has_port();
    }
    let dns = rule.table == Table::Raw || rule.chain == Chain::IstioOutputDns;
    let port_alone = matches!(rule.matches[..], [Match::Protocol(_), Match::DestinationPort { .. }]);
    !(dns || rule.chain == Chain::IstioOutput && port_alone)
}

/// Formats an address that must match; in ambient mode a single address has no prefix length.
fn address(net: &IpNet, mode: DataplaneMode) -> String {
    let is_host = net.prefix_len() == net.max_prefix_len();
    if mode == DataplaneMode::Ambient && is_host { fmt_addr(net.addr()) } else { fmt_net(net) }
}

fn family(net: &IpNet) -> &'static str {
    match net {
        IpNet::V4(_) => "ip",
        IpNet::V6(_) => "ip6",
    }
}

/// The start of a comparison of the masked mark, as Istio writes it in each table.
fn masked_mark(rule: &Rule) -> &'static str {
    match rule.table {
        Table::Nat => "mark and",
        Table::Raw => "meta mark and",
        Table::Mangle => "meta mark &",
    }
}

/// The operator `!=`. In the rule of inbound IPv4 connections Istio writes two spaces before it.
fn equal_not(rule: &Rule) -> &'static str {
    let is_inbound = rule.target == Target::RedirectTo(Port(port::INBOUND));
    if is_inbound && rule.families == Families::V4 { " !=" } else { "!=" }
}

/// Whether the rule counts packets: all of Istio's except jumps of ambient mode.
pub fn has_counter(rule: &Rule, mode: DataplaneMode) -> bool {
    mode == DataplaneMode::Sidecar || rule.jumps_to().is_none()
}

/// Formats the verdict with its counter.
fn target_text(rule: &Rule, mode: DataplaneMode) -> String {
    match &rule.target {
        Target::Return => "counter return".to_owned(),
        Target::Accept => "counter accept".to_owned(),
        Target::Drop => "counter drop".to_owned(),
        Target::Jump(chain) if !has_counter(rule, mode) => format!("jump {}", chain_name(*chain)),
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
        // Istio's text has two spaces here, too.
        Target::SetConnMark { mark, mask } => format!("counter ct mark set ct mark & {:#x} |  {mark:#x}", !mask),
        Target::CtZone(zone) => format!("counter ct zone set {zone}"),
    }
}
