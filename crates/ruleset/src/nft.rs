//! Formats rules for nft: the input of `nft -f -` in Istio's native nftables mode.
//!
//! For dry runs and comparisons with Istio. Tables have family `inet` for both families: a rule without an address is
//! written once, a rule with an address as an IPv4 and an IPv6 variant, in this order. A jump that only one family needs
//! applies to both; the rules of the chain it leads to match addresses of that family only.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ipnet::IpNet;

use crate::{
    At, Chain, CtStates, Families, Hook, Layout, Match, NativeTable, Proto, Rule, RuleSet, Spelling, Table, Target,
};
use crate::{Port, ProtocolText, fmt_addr, fmt_net};
use contract::port;

/// Formats one transaction after which Istio's tables hold exactly these rules.
pub fn render(rules: &RuleSet) -> String {
    let chains = rules.merged_chains();
    let mut text = String::new();
    for NativeTable { table, name, chains: declared, .. } in rules.layout.tables {
        let mut own = declared.iter().filter(|c| chains.contains_key(&(table, **c))).peekable();
        if own.peek().is_none() {
            continue;
        }
        let _ = writeln!(text, "add table inet {name}\nflush table inet {name}");
        for chain in own {
            let hook = hook(table, *chain).map(|h| format!(" {{ {h} ; }}")).unwrap_or_default();
            let _ = writeln!(text, "add chain inet {name} {}{hook}", chain.native());
        }
        let mut lengths = BTreeMap::new();
        for rule in rules.merged().filter(|r| r.table == table) {
            let len: &mut usize = lengths.entry(rule.chain).or_default();
            let _ = writeln!(text, "{}", line(rule, rules.layout, *len));
            *len += 1;
        }
    }
    text
}

/// Formats the hook of a base chain; returns none for other chains.
fn hook(table: Table, chain: Chain) -> Option<String> {
    let Chain::Builtin(hook) = chain else { return None };
    let kind = match (table, hook) {
        (Table::Nat, _) => "nat",
        // The chain's type is `route`, because a changed mark must change the route of outbound packets.
        (Table::Mangle, Hook::Output) => "route",
        _ => "filter",
    };
    Some(format!("type {kind} hook {} priority {}", chain.native(), table.priority(hook)))
}

/// Formats a rule; `len` is the chain's current length, because nft inserts only before an existing rule.
fn line(rule: &Rule, layout: &Layout, len: usize) -> String {
    let spelling = layout.spelling;
    let place = format!("inet {} {}", layout.native(rule.table).name, rule.chain.native());
    let mut words = vec![match (rule.at, rule.at.index(len)) {
        (At::Place(_), index) if index < len => format!("insert rule {place} index {index}"),
        _ => format!("add rule {place}"),
    }];
    let mut matches: Vec<&Match> = rule.matches.iter().collect();
    matches.sort_by_key(|m| rank(m, rule.table, spelling));
    words.extend(matches.iter().filter_map(|m| match_text(m, rule, spelling)));
    words.push(target_text(rule, spelling));
    words.join(" ")
}

/// Returns the sort key of a match in Istio's nft rules. In raw, ports precede addresses; in ambient mode's nat, marks and
/// ports keep the rule's order.
pub fn rank(m: &Match, table: Table, spelling: Spelling) -> u8 {
    match m {
        Match::InInterface(_) | Match::OutInterface(_) | Match::NotOutInterface(_) => 0,
        Match::Protocol(_) | Match::Extension(_) => 1,
        Match::Source(_) | Match::Destination { .. } if table == Table::Raw => 4,
        Match::Source(_) | Match::Destination { .. } | Match::CtState(_) => 2,
        Match::DestinationPort { .. } | Match::NotDestinationPorts(_) | Match::SourcePort(_) => 3,
        Match::Mark { .. } if spelling == Spelling::Ambient && table == Table::Nat => 3,
        Match::Mark { .. } | Match::ConnMark { .. } => 5,
        Match::Uid { .. } | Match::Gid { .. } => 6,
    }
}

/// Formats a match; returns none for a protocol or an extension that Istio does not write.
fn match_text(m: &Match, rule: &Rule, spelling: Spelling) -> Option<String> {
    let not = |negated: bool| if negated { "!= " } else { "" };
    let proto = rule.protocol().map_or("tcp", Proto::as_str);
    // Istio writes `meta` before `skuid` and `skgid` only in the table raw; nft reads both forms in the same way.
    let meta = if rule.table == Table::Raw { "meta " } else { "" };
    Some(match m {
        Match::InInterface(nic) => format!("iifname {nic}"),
        Match::OutInterface(nic) => format!("oifname {nic}"),
        Match::NotOutInterface(nic) => format!("oifname != {nic}"),
        Match::Source(net) => format!("{} saddr {}", family(net), address(net, spelling)),
        Match::Destination { net, negated: false } => format!("{} daddr {}", family(net), address(net, spelling)),
        Match::Destination { net, negated: true } => format!("{} daddr != {}", family(net), fmt_net(net)),
        Match::Extension(_) => return None,
        Match::Protocol(_) if !spells_protocol(rule, spelling) => return None,
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
        Match::ConnMark { mark, mask: u32::MAX, negated } => format!("ct mark {}{mark}", not(*negated)),
        Match::ConnMark { mark, mask, negated } => {
            format!("ct mark and {mask:#x} {} {mark:#x}", if *negated { "!=" } else { "==" })
        }
    })
}

/// Whether Istio writes the rule's protocol: in ambient mode unless the rule matches a port, which implies the protocol;
/// for sidecars never in raw, and in other tables as the chain's [`ProtocolText`] specifies.
pub fn spells_protocol(rule: &Rule, spelling: Spelling) -> bool {
    if spelling == Spelling::Ambient {
        return !rule.has_port();
    }
    let protocol = match rule.chain {
        Chain::Own(own) => own.protocol,
        Chain::Builtin(_) => ProtocolText::Always,
    };
    let port_alone = matches!(rule.matches[..], [Match::Protocol(_), Match::DestinationPort { .. }]);
    rule.table != Table::Raw
        && match protocol {
            ProtocolText::Always => true,
            ProtocolText::UnlessPortAlone => !port_alone,
            ProtocolText::Never => false,
        }
}

/// Formats the address of a match that is not negated; in ambient mode a single address has no prefix length.
fn address(net: &IpNet, spelling: Spelling) -> String {
    let is_host = net.prefix_len() == net.max_prefix_len();
    if spelling == Spelling::Ambient && is_host { fmt_addr(net.addr()) } else { fmt_net(net) }
}

fn family(net: &IpNet) -> &'static str {
    match net {
        IpNet::V4(_) => "ip",
        IpNet::V6(_) => "ip6",
    }
}

/// Returns the start of a comparison with the masked mark, as Istio writes it in each table.
fn masked_mark(rule: &Rule) -> &'static str {
    match rule.table {
        Table::Nat => "mark and",
        Table::Raw => "meta mark and",
        Table::Mangle => "meta mark &",
    }
}

/// Returns the operator `!=`. Istio writes two spaces before it in the rule that redirects inbound IPv4 connections.
fn equal_not(rule: &Rule) -> &'static str {
    let is_inbound = rule.target == Target::RedirectTo(Port(port::INBOUND));
    if is_inbound && rule.families == Families::V4 { " !=" } else { "!=" }
}

/// Whether the rule counts packets: all of Istio's rules do, except jumps in ambient mode.
pub fn has_counter(rule: &Rule, spelling: Spelling) -> bool {
    spelling == Spelling::Sidecar || rule.jumps_to().is_none()
}

/// Formats the target with its counter.
fn target_text(rule: &Rule, spelling: Spelling) -> String {
    match &rule.target {
        Target::Return => "counter return".to_owned(),
        Target::Accept => "counter accept".to_owned(),
        Target::Drop => "counter drop".to_owned(),
        Target::Jump(chain) if !has_counter(rule, spelling) => format!("jump {}", chain.native()),
        Target::Jump(chain) => format!("counter jump {}", chain.native()),
        Target::RedirectTo(port) => format!("counter redirect to :{port}"),
        Target::Tproxy { port, mark, mask } => {
            let family = match rule.families {
                Families::V4 => "ip ",
                Families::V6 => "ip6 ",
                Families::Both => "",
            };
            format!("tproxy {family}to :{port} meta mark set {} counter accept", replaced(*mark, *mask))
        }
        Target::SetMark { mark, mask } => format!("counter meta mark set {}", replaced(*mark, *mask)),
        Target::SaveMark => "counter ct mark set mark".to_owned(),
        Target::RestoreMark => "counter meta mark set ct mark".to_owned(),
        // Istio writes two spaces after `|`, too.
        Target::SetConnMark { mark, mask } => format!("counter ct mark set ct mark & {:#x} |  {mark:#x}", !mask),
        Target::CtZone(zone) => format!("counter ct zone set {zone}"),
    }
}

/// Formats a packet's new mark: a constant, or the old mark with the bits of the mask replaced.
fn replaced(mark: u32, mask: u32) -> String {
    if mask == u32::MAX { mark.to_string() } else { format!("meta mark & {:#x} | {mark:#x}", !mask) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn other_bits_of_a_mark_stay() {
        let (mark, mask) = (0x111, 0xfff);
        let text = |matches: &[Match], target: Target| {
            let rule = Rule::new(Table::Mangle, Chain::OUTPUT, matches, target);
            let text = render(&RuleSet { rules: vec![rule], ..RuleSet::empty(&sample::LAYOUT) });
            text.rsplit_once("our-mangle output ").map(|(_, line)| line.to_owned()).unwrap_or_default()
        };
        let set = Target::SetMark { mark, mask };
        assert_eq!(text(&[], set), "counter meta mark set meta mark & 0xfffff000 | 0x111\n");
        let other = [Match::ConnMark { mark, mask, negated: true }];
        assert_eq!(text(&other, Target::Return), "ct mark and 0xfff != 0x111 counter return\n");
        let tproxy = Target::Tproxy { port: Port(1), mark, mask };
        let expected = "meta l4proto tcp tproxy to :1 meta mark set meta mark & 0xfffff000 | 0x111 counter accept\n";
        assert_eq!(text(&[Match::tcp()], tproxy), expected);
    }
}
