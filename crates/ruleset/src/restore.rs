//! Formats rules for iptables: as the input that Istio gives to `iptables-restore`, and as the output of `iptables-save`.
//!
//! For dry runs, for the legacy backend (which runs `iptables-legacy-restore` and compares with `-save`) and for
//! messages. Every word comes from a number or from a type without spaces, so that no value can become a second argument.
//! Pure.

use std::fmt::Write as _;

use ipnet::IpNet;

use crate::{At, Chain, CtStates, Family, Match, Proto, Rule, RuleSet, Spelling, Table, Target};
use crate::{Port, fmt_addr, fmt_net};

/// Istio's order of tables.
const TABLES: [Table; 3] = [Table::Mangle, Table::Nat, Table::Raw];

/// Formats the input of `iptables-restore --noflush` (`ip6tables-restore` for IPv6): new chains, rules and `COMMIT` for
/// each table with rules. Empty if the family has no rules.
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
            let _ = writeln!(text, "{}", written_form(rule, family, rules.layout.spelling));
        }
        text.push_str("COMMIT\n");
    }
    text
}

/// Formats the output of `istio-iptables --dry-run`: the commands that read the rules before and after, and between them
/// the input of the restores.
pub fn dry_run(rules: &RuleSet) -> String {
    let after = if rules.ipv6 { "iptables-save\nip6tables-save\n" } else { "iptables-save\n" };
    let [v4, v6] = [Family::V4, Family::V6].map(|family| render(rules, family));
    // The IPv6 rules are read before the restores even if the pod has no IPv6, because there may be leftover rules.
    format!("iptables-save\nip6tables-save\n{v4}{v6}{after}")
}

/// Formats a rule for `iptables-restore` as Istio does.
pub fn written_form(rule: &Rule, family: Family, spelling: Spelling) -> String {
    line(rule, family, Style::Written(spelling))
}

/// Formats a rule as `iptables-save` (`ip6tables-save`) of either backend prints it, always as an append. For a
/// comparison with the kernel's rules, owners must be numeric ids, because the kernel stores no names.
pub fn save_form(rule: &Rule, family: Family) -> String {
    line(rule, family, Style::Save)
}

/// Returns the chains to create: first those with rules, then those that are only jumped to.
fn new_chains(rules: &[&Rule]) -> Vec<Chain> {
    let mut chains = Vec::new();
    for chain in rules.iter().map(|r| r.chain).chain(rules.iter().filter_map(|r| r.jumps_to())) {
        if !chain.is_builtin() && !chains.contains(&chain) {
            chains.push(chain);
        }
    }
    chains
}

/// The syntax variant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// As Istio writes rules: matches in the rule's order, numbers as given.
    Written(Spelling),
    /// As `iptables-save` prints rules: matches in iptables' fixed order, with explicit defaults.
    Save,
}

fn line(rule: &Rule, family: Family, style: Style) -> String {
    let chain = rule.chain.as_str();
    let mut words = vec![match rule.at {
        At::Place(place) if matches!(style, Style::Written(_)) => format!("-I {chain} {place}"),
        _ => format!("-A {chain}"),
    }];
    let mut matches: Vec<&Match> = rule.matches.iter().collect();
    if style == Style::Save {
        matches.sort_by_key(|m| save_rank(m));
    }
    words.extend(matches.iter().filter_map(|m| match style {
        Style::Written(spelling) => Some(written_match(m, spelling)),
        Style::Save => save_match(m, rule),
    }));
    words.push(match style {
        Style::Written(spelling) => written_target(rule, family, spelling),
        Style::Save => save_target(&rule.target, family),
    });
    words.join(" ")
}

fn not(negated: bool) -> &'static str {
    if negated { "! " } else { "" }
}

/// Formats a mark, with its mask unless the mask has all bits.
fn masked(mark: String, mask: u32) -> String {
    if mask == u32::MAX { mark } else { format!("{mark}/{mask:#x}") }
}

/// Formats a match as Istio does. In ambient mode a single address has no prefix length, unless it is negated. A mark with
/// a mask is hexadecimal in both modes.
fn written_match(m: &Match, spelling: Spelling) -> String {
    let decimal = |mark: &u32, mask: &u32| if *mask == u32::MAX { mark.to_string() } else { format!("{mark:#x}") };
    match m {
        Match::Source(net) if spelling == Spelling::Ambient && is_host(net) => format!("-s {}", fmt_addr(net.addr())),
        Match::Destination { net, negated: false } if spelling == Spelling::Ambient && is_host(net) => {
            format!("-d {}", fmt_addr(net.addr()))
        }
        Match::InInterface(nic) => format!("-i {nic}"),
        Match::OutInterface(nic) => format!("-o {nic}"),
        Match::NotOutInterface(nic) => format!("! -o {nic}"),
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
        Match::Mark { mark, mask, negated } => {
            format!("-m mark {}--mark {}", not(*negated), masked(decimal(mark, mask), *mask))
        }
        Match::ConnMark { mark, mask, negated } => {
            format!("-m connmark {}--mark {}", not(*negated), masked(decimal(mark, mask), *mask))
        }
        Match::Extension(proto) => format!("-m {}", proto.as_str()),
    }
}

fn is_host(net: &IpNet) -> bool {
    net.prefix_len() == net.max_prefix_len()
}

/// Returns the sort key of a match in the output of `iptables-save`: addresses, interfaces and protocol come first, in this
/// order; other matches keep the rule's order.
fn save_rank(m: &Match) -> u8 {
    match m {
        Match::Source(_) => 0,
        Match::Destination { .. } => 1,
        Match::InInterface(_) => 2,
        Match::OutInterface(_) | Match::NotOutInterface(_) => 3,
        Match::Protocol(_) => 4,
        _ => 5,
    }
}

/// Formats a match as `iptables-save` does; returns none if it prints nothing, as for a range of all addresses.
fn save_match(m: &Match, rule: &Rule) -> Option<String> {
    let written = |m: &Match| written_match(m, Spelling::Sidecar);
    Some(match m {
        Match::Source(net) | Match::Destination { net, negated: false } if net.prefix_len() == 0 => return None,
        Match::Source(net) => written(&Match::Source(net.trunc())),
        Match::Destination { net, negated } => written(&Match::Destination { net: net.trunc(), negated: *negated }),
        Match::DestinationPort { .. } | Match::SourcePort(_) => {
            format!("-m {} {}", rule.protocol().map_or("tcp", Proto::as_str), written(m))
        }
        Match::Mark { mark, mask, negated } => {
            format!("-m mark {}--mark {}", not(*negated), masked(format!("{mark:#x}"), *mask))
        }
        Match::ConnMark { mark, mask, negated } => {
            format!("-m connmark {}--mark {}", not(*negated), masked(format!("{mark:#x}"), *mask))
        }
        // The extension is printed with the match of the port.
        Match::Extension(_) if rule.has_port() => return None,
        _ => written(m),
    })
}

/// Formats a target as Istio does, which for most targets is the format of `iptables-save`.
fn written_target(rule: &Rule, family: Family, spelling: Spelling) -> String {
    match &rule.target {
        // Istio redirects UDP only for DNS, and abbreviates the option there.
        Target::RedirectTo(port) if rule.protocol() == Some(Proto::Udp) => format!("-j REDIRECT --to-port {port}"),
        Target::Tproxy { port, mark, mask } => format!("-j TPROXY --tproxy-mark {mark}/{mask:#x} --on-port {port}"),
        Target::SetMark { mark, mask: u32::MAX } => format!("-j MARK --set-mark {mark}"),
        Target::SaveMark => "-j CONNMARK --save-mark".to_owned(),
        Target::RestoreMark if spelling == Spelling::Sidecar => "-j CONNMARK --restore-mark".to_owned(),
        target => save_target(target, family),
    }
}

fn save_target(target: &Target, family: Family) -> String {
    let any = match family {
        Family::V4 => "0.0.0.0",
        Family::V6 => "::",
    };
    match target {
        Target::RedirectTo(port) => format!("-j REDIRECT --to-ports {port}"),
        Target::Tproxy { port, mark, mask } => {
            format!("-j TPROXY --on-port {port} --on-ip {any} --tproxy-mark {mark:#x}/{mask:#x}")
        }
        Target::SetMark { mark, mask } => format!("-j MARK --set-xmark {mark:#x}/{mask:#x}"),
        Target::SaveMark => "-j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff".to_owned(),
        Target::RestoreMark => "-j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff".to_owned(),
        Target::SetConnMark { mark, mask } => format!("-j CONNMARK --set-xmark {mark:#x}/{mask:#x}"),
        Target::CtZone(zone) => format!("-j CT --zone {zone}"),
        Target::Return => "-j RETURN".to_owned(),
        Target::Accept => "-j ACCEPT".to_owned(),
        Target::Drop => "-j DROP".to_owned(),
        Target::Jump(chain) => format!("-j {}", chain.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn a_range_of_everything_is_not_printed_by_save() {
        let rule = |net: &str| Rule::new(Table::Nat, sample::OURS, [Match::to(net.parse().unwrap())], Target::Return);
        assert_eq!(save_form(&rule("0.0.0.0/0"), Family::V4), "-A OURS -j RETURN");
        assert_eq!(save_form(&rule("::/0"), Family::V6), "-A OURS -j RETURN");
        assert_eq!(save_form(&rule("10.1.2.3/8"), Family::V4), "-A OURS -d 10.0.0.0/8 -j RETURN");
    }

    #[test]
    fn a_dry_run_reads_ipv6_after_only_where_the_pod_has_it() {
        let rules = vec![Rule::new(Table::Nat, sample::OURS, [], Target::Return)];
        let after = |ipv6| dry_run(&RuleSet { ipv6, rules: rules.clone(), layout: &sample::LAYOUT });
        assert!(after(false).ends_with("COMMIT\niptables-save\n"));
        assert!(after(true).ends_with("COMMIT\niptables-save\nip6tables-save\n"));
        assert!(after(false).starts_with("iptables-save\nip6tables-save\n* nat\n"));
    }

    #[test]
    fn a_mark_with_a_mask_is_written_with_it() {
        let (mark, mask) = (0x111, 0xfff);
        let forms = |matches: &[Match], target: Target| {
            let rule = Rule::new(Table::Mangle, Chain::OUTPUT, matches, target);
            [save_form(&rule, Family::V4), written_form(&rule, Family::V4, Spelling::Sidecar)]
        };
        let same = |text: &str| [text.to_owned(), text.to_owned()];
        let set = Target::SetMark { mark, mask };
        assert_eq!(forms(&[], set), same("-A OUTPUT -j MARK --set-xmark 0x111/0xfff"));
        let other = [Match::ConnMark { mark, mask, negated: true }];
        assert_eq!(forms(&other, Target::Return), same("-A OUTPUT -m connmark ! --mark 0x111/0xfff -j RETURN"));
        let [save, written] = forms(&[], Target::Tproxy { port: Port(1), mark, mask });
        assert_eq!(save, "-A OUTPUT -j TPROXY --on-port 1 --on-ip 0.0.0.0 --tproxy-mark 0x111/0xfff");
        assert_eq!(written, "-A OUTPUT -j TPROXY --tproxy-mark 273/0xfff --on-port 1");
    }
}
