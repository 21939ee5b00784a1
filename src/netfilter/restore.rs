//! Rules as iptables' text: what `iptables-restore` reads, in Istio's own words, and what `iptables-save` prints.
//!
//! Called for dry runs, by the legacy backend (which feeds `iptables-legacy-restore` and compares with the output of
//! `-save`) and by whoever shows a rule to people. Writes text and nothing else. Every word comes from a number or from
//! a type that holds no spaces, so that no value can become a second argument.

use std::fmt::Write as _;

use crate::redirect::{Port, fmt_net};
use crate::rules::{At, Chain, CtStates, Family, Match, Proto, Rule, RuleSet, Table, Target};

/// Tables in the order in which Istio writes them.
const TABLES: [Table; 3] = [Table::Mangle, Table::Nat, Table::Raw];

/// Input for `iptables-restore --noflush` (`ip6tables-restore` for IPv6): for each table that has rules its new chains,
/// its rules and `COMMIT`. Empty where the family has no rules.
pub fn render(rules: &RuleSet, family: Family) -> String {
    let mut text = String::new();
    for table in TABLES {
        let of_table: Vec<&Rule> = rules.of(family).filter(|r| r.table == table).collect();
        if of_table.is_empty() {
            continue;
        }
        let _ = writeln!(text, "* {}", table.as_str());
        for chain in new_chains(&of_table) {
            let _ = writeln!(text, "-N {}", chain.as_str());
        }
        for rule in of_table {
            let _ = writeln!(text, "{}", line(rule, family, Style::Istio));
        }
        text.push_str("COMMIT\n");
    }
    text
}

/// What `istio-iptables --dry-run` prints: the commands that read the present state, and the input of the restores
/// between them.
pub fn dry_run(rules: &RuleSet) -> String {
    let after = if rules.ipv6 { "iptables-save\nip6tables-save\n" } else { "iptables-save\n" };
    let [v4, v6] = [Family::V4, Family::V6].map(|family| render(rules, family));
    // Before, IPv6 is read even where the pod has none: rules could be left there.
    format!("iptables-save\nip6tables-save\n{v4}{v6}{after}")
}

/// The rule as `iptables-save` (`ip6tables-save`) of either backend prints it, always as an append. Owners must be
/// numbers to be told from what a kernel holds: the kernel knows no names.
pub fn save_form(rule: &Rule, family: Family) -> String {
    line(rule, family, Style::Save)
}

/// Chains to create: those that rules are in, then those that are only jumped to.
fn new_chains(rules: &[&Rule]) -> Vec<Chain> {
    let mut chains = Vec::new();
    for chain in rules.iter().map(|r| r.chain).chain(rules.iter().filter_map(|r| r.jumps_to())) {
        if !chain.is_builtin() && !chains.contains(&chain) {
            chains.push(chain);
        }
    }
    chains
}

/// Whose words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Matches in the order of the rule, numbers as given.
    Istio,
    /// iptables' fixed order and defaults spelled out.
    Save,
}

fn line(rule: &Rule, family: Family, style: Style) -> String {
    let chain = rule.chain.as_str();
    let mut words = vec![match rule.at {
        At::Place(place) if style == Style::Istio => format!("-I {chain} {place}"),
        _ => format!("-A {chain}"),
    }];
    let mut matches: Vec<&Match> = rule.matches.iter().collect();
    if style == Style::Save {
        matches.sort_by_key(|m| save_rank(m));
    }
    let proto = rule.protocol();
    words.extend(matches.iter().filter_map(|m| match style {
        Style::Istio => Some(istio_match(m)),
        Style::Save => save_match(m, proto),
    }));
    words.push(match style {
        Style::Istio => istio_target(&rule.target, proto),
        Style::Save => save_target(&rule.target, family),
    });
    words.join(" ")
}

fn not(negated: bool) -> &'static str {
    if negated { "! " } else { "" }
}

fn istio_match(m: &Match) -> String {
    match m {
        Match::InInterface(nic) => format!("-i {nic}"),
        Match::OutInterface(nic) => format!("-o {nic}"),
        Match::Source(net) => format!("-s {}", fmt_net(net)),
        Match::Destination { net, negated } => format!("{}-d {}", not(*negated), fmt_net(net)),
        Match::Protocol(proto) => format!("-p {}", proto.as_str()),
        Match::DestinationPort { port, negated } => format!("{}--dport {port}", not(*negated)),
        Match::NotDestinationPorts(ports) => {
            let ports: Vec<String> = ports.iter().map(Port::to_string).collect();
            format!("-m multiport ! --dports {}", ports.join(","))
        }
        Match::SourcePort(port) => format!("--sport {port}"),
        Match::Uid { owner, negated } => format!("-m owner {}--uid-owner {owner}", not(*negated)),
        Match::Gid { owner, negated } => format!("-m owner {}--gid-owner {owner}", not(*negated)),
        Match::CtState(CtStates::Invalid) => "-m conntrack --ctstate INVALID".to_owned(),
        Match::CtState(CtStates::RelatedEstablished) => "-m conntrack --ctstate RELATED,ESTABLISHED".to_owned(),
        Match::Mark { mark, negated } => format!("-m mark {}--mark {mark}", not(*negated)),
        Match::ConnMark(mark) => format!("-m connmark --mark {mark}"),
    }
}

/// Addresses, interfaces and protocol have a fixed place; the rest stays in the order in which it was given.
fn save_rank(m: &Match) -> u8 {
    match m {
        Match::Source(_) => 0,
        Match::Destination { .. } => 1,
        Match::InInterface(_) => 2,
        Match::OutInterface(_) => 3,
        Match::Protocol(_) => 4,
        _ => 5,
    }
}

/// `None` where nothing is printed, as for a range that holds every address.
fn save_match(m: &Match, proto: Option<Proto>) -> Option<String> {
    Some(match m {
        Match::Source(net) | Match::Destination { net, negated: false } if net.prefix_len() == 0 => return None,
        Match::Source(net) => istio_match(&Match::Source(net.trunc())),
        Match::Destination { net, negated } => istio_match(&Match::Destination { net: net.trunc(), negated: *negated }),
        Match::DestinationPort { .. } | Match::SourcePort(_) => {
            format!("-m {} {}", proto.map_or("tcp", Proto::as_str), istio_match(m))
        }
        Match::Mark { mark, negated } => format!("-m mark {}--mark {mark:#x}", not(*negated)),
        Match::ConnMark(mark) => format!("-m connmark --mark {mark:#x}"),
        _ => istio_match(m),
    })
}

fn istio_target(target: &Target, proto: Option<Proto>) -> String {
    match target {
        // Only DNS is redirected over UDP, and there Istio writes the abbreviated option.
        Target::RedirectTo(port) if proto == Some(Proto::Udp) => format!("-j REDIRECT --to-port {port}"),
        Target::RedirectTo(port) => format!("-j REDIRECT --to-ports {port}"),
        Target::Tproxy { port, mark } => format!("-j TPROXY --tproxy-mark {mark}/0xffffffff --on-port {port}"),
        Target::SetMark(mark) => format!("-j MARK --set-mark {mark}"),
        Target::SaveMark => "-j CONNMARK --save-mark".to_owned(),
        Target::RestoreMark => "-j CONNMARK --restore-mark".to_owned(),
        Target::CtZone(zone) => format!("-j CT --zone {zone}"),
        Target::Return => "-j RETURN".to_owned(),
        Target::Accept => "-j ACCEPT".to_owned(),
        Target::Drop => "-j DROP".to_owned(),
        Target::Jump(chain) => format!("-j {}", chain.as_str()),
    }
}

fn save_target(target: &Target, family: Family) -> String {
    let any = match family {
        Family::V4 => "0.0.0.0",
        Family::V6 => "::",
    };
    match target {
        Target::Tproxy { port, mark } => {
            format!("-j TPROXY --on-port {port} --on-ip {any} --tproxy-mark {mark:#x}/0xffffffff")
        }
        Target::SetMark(mark) => format!("-j MARK --set-xmark {mark:#x}/0xffffffff"),
        Target::SaveMark => "-j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff".to_owned(),
        Target::RestoreMark => "-j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff".to_owned(),
        _ => istio_target(target, None),
    }
}
