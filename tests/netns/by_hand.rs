//! Tests each match and each target in a real kernel. Compares the resulting rule with the rule that iptables' own
//! tools create from a line written by hand. Other trials compare with texts that this project formats, so they would
//! miss an error that affects both the text and the rule.

use libtest_mimic::Trial;
use netfilter::Backend;
use redirect::istio;
use ruleset::{Chain, CtStates, Families, Interface, Match, Owner, Port, Proto, Rule, RuleSet, Table, Target};

use crate::encoder::{assert_same, program, saved};
use test_support::netns::{self as support, TestNetns};

const TOOLS: &[&str] =
    &["iptables-nft-restore", "iptables-nft-save", "ip6tables-nft-restore", "ip6tables-nft-save", "nft"];

/// A rule in `ISTIO_OUTPUT` or in a built-in chain: its table, its chain, the line written by hand, and the rule's
/// matches and target.
type Line = (Table, Chain, &'static str, Vec<Match>, Target);

pub(crate) fn trials() -> Vec<Trial> {
    let of = |family: Families| move || check(family);
    vec![
        support::trial("by hand/IPv4", TOOLS, of(Families::V4)),
        support::trial("by hand/IPv6", TOOLS, of(Families::V6)),
    ]
}

fn check(family: Families) {
    let (lines, program_name) = match family {
        Families::V6 => ([lines(), lines_v6()].concat(), "ip6tables-nft-restore"),
        _ => ([lines(), lines_v4()].concat(), "iptables-nft-restore"),
    };
    // Each rule is compared in its own netns, so that the failure names the rule that differs.
    for line in &lines {
        let (ours, theirs) = (TestNetns::new(), TestNetns::new());
        theirs.feed(program_name, &["--noflush"], &text(line));
        program(&ours, Backend::IptablesNft, &rule_set(line, family));
        let expected = saved(&theirs);
        assert!(expected.lines().any(|saved| saved.starts_with("-A ")), "{:?}: the tools loaded nothing", line.2);
        assert_same(&expected, &saved(&ours));
        let listed = |netns: &TestNetns| netns.run("nft", &["--debug=netlink", "list", "ruleset"]);
        assert_same(&expressions(&listed(&theirs)), &expressions(&listed(&ours)));
    }
}

/// Returns the kernel's expressions of a rule from nft's listing, without headings and counters.
fn expressions(listing: &str) -> String {
    let is_expression = |line: &&str| line.trim_start().starts_with('[') && !line.contains("counter pkts");
    listing.lines().filter(is_expression).map(|line| format!("{}\n", line.trim())).collect()
}

fn text((table, chain, line, _, target): &Line) -> String {
    let new = |chain: &Chain| if chain.is_builtin() { String::new() } else { format!("-N {}\n", chain.as_str()) };
    let jumped = match target {
        Target::Jump(to) => new(to),
        _ => String::new(),
    };
    let chain_name = chain.as_str();
    format!("*{}\n{}{jumped}-A {chain_name} {line}\nCOMMIT\n", table.as_str(), new(chain))
}

fn rule_set((table, chain, _, matches, target): &Line, family: Families) -> RuleSet {
    let rule = Rule::new(*table, *chain, matches.clone(), target.clone()).only(family);
    RuleSet { ipv6: family == Families::V6, layout: &istio::SIDECAR, rules: vec![rule] }
}

fn nic(name: &str) -> Interface {
    Interface::new(name).unwrap()
}

fn net(text: &str) -> ipnet::IpNet {
    text.parse().unwrap()
}

/// Returns the lines that are the same in both families.
#[rustfmt::skip]
fn lines() -> Vec<Line> {
    use Match::{
        ConnMark, CtState, Extension, Gid, InInterface, Mark, NotDestinationPorts, NotOutInterface, OutInterface, Protocol,
        SourcePort, Uid,
    };
    use Table::{Mangle, Nat, Raw};
    let (out, pre) = (istio::OUTPUT, Chain::PREROUTING);
    let (tcp, udp) = (Protocol(Proto::Tcp), Protocol(Proto::Udp));
    let (port, not_port) = (|port| Match::port(Port(port)), |port| Match::not_port(Port(port)));
    let owner = Owner::Id;
    vec![
        (Nat, out, "-j RETURN", vec![], Target::Return),
        (Nat, out, "-j ACCEPT", vec![], Target::Accept),
        (Mangle, out, "-j DROP", vec![], Target::Drop),
        (Nat, out, "-j ISTIO_REDIRECT", vec![], Target::Jump(istio::REDIRECT)),
        (Nat, Chain::OUTPUT, "--jump ISTIO_OUTPUT", vec![], Target::Jump(out)),
        (Nat, out, "--out-interface lo -j RETURN", vec![OutInterface(nic("lo"))], Target::Return),
        (Mangle, pre, "--in-interface eth0.7 -j RETURN", vec![InInterface(nic("eth0.7"))], Target::Return),
        (Nat, pre, "-i fifteen-letters -j RETURN", vec![InInterface(nic("fifteen-letters"))], Target::Return),
        (Nat, out, "--protocol tcp -j RETURN", vec![tcp.clone()], Target::Return),
        (Nat, out, "-p 17 -j RETURN", vec![udp.clone()], Target::Return),
        (Nat, out, "-p tcp -m tcp --destination-port 15008 -j RETURN", vec![tcp.clone(), port(15008)], Target::Return),
        (Nat, out, "-p tcp -m tcp ! --dport 258 -j RETURN", vec![tcp.clone(), not_port(258)], Target::Return),
        (Nat, out, "-p udp -m udp --dport 53 -j RETURN", vec![udp.clone(), port(53)], Target::Return),
        (Raw, pre, "-p udp -m udp --source-port 53 -j RETURN", vec![udp.clone(), SourcePort(Port(53))], Target::Return),
        (Nat, out, "-p tcp -m tcp --dport 65535 -j RETURN", vec![tcp.clone(), port(65535)], Target::Return),
        (Nat, out, "-p tcp -m multiport ! --destination-ports 1,258,65535 -j RETURN",
            vec![tcp.clone(), NotDestinationPorts(vec![Port(1), Port(258), Port(65535)])], Target::Return),
        (Nat, out, "-m owner --uid-owner 1337 -j RETURN", vec![Uid { owner: owner(1337), negated: false }], Target::Return),
        (Nat, out, "-m owner ! --uid-owner 0 -j RETURN", vec![Uid { owner: owner(0), negated: true }], Target::Return),
        (Nat, out, "-m owner --gid-owner 66051 -j RETURN", vec![Gid { owner: owner(66051), negated: false }], Target::Return),
        (Nat, out, "-m owner ! --gid-owner 4294967294 -j RETURN",
            vec![Gid { owner: owner(4_294_967_294), negated: true }], Target::Return),
        (Mangle, pre, "-m conntrack --ctstate ESTABLISHED,RELATED -j RETURN",
            vec![CtState(CtStates::RelatedEstablished)], Target::Return),
        (Mangle, pre, "-m conntrack --ctstate INVALID -j DROP", vec![CtState(CtStates::Invalid)], Target::Drop),
        (Mangle, pre, "-m mark --mark 1337 -j RETURN", vec![Mark { mark: 1337, mask: u32::MAX, negated: false }], Target::Return),
        (Mangle, pre, "-m mark ! --mark 0x1020304 -j RETURN", vec![Mark { mark: 0x0102_0304, mask: u32::MAX, negated: true }], Target::Return),
        (Mangle, pre, "-m connmark --mark 0x539 -j RETURN", vec![ConnMark { mark: 1337, mask: u32::MAX, negated: false }], Target::Return),
        (Nat, out, "! --out-interface lo -j RETURN", vec![NotOutInterface(nic("lo"))], Target::Return),
        (Nat, out, "-p tcp -m tcp -j ACCEPT", vec![tcp.clone(), Extension(Proto::Tcp)], Target::Accept),
        (Mangle, pre, "-m mark --mark 0x539/0xfff -j RETURN", vec![Mark { mark: 0x539, mask: 0xfff, negated: false }], Target::Return),
        (Nat, out, "-m mark ! --mark 0x539/0xfff -j RETURN", vec![Mark { mark: 0x539, mask: 0xfff, negated: true }], Target::Return),
        (Mangle, pre, "-m connmark ! --mark 0x111/0xfff -j RETURN", vec![ConnMark { mark: 0x111, mask: 0xfff, negated: true }], Target::Return),
        (Mangle, pre, "-m connmark --mark 0x111/0xfff -j RETURN", vec![ConnMark { mark: 0x111, mask: 0xfff, negated: false }], Target::Return),
        (Nat, out, "-p tcp -j REDIRECT --to-ports 15001", vec![tcp.clone()], Target::RedirectTo(Port(15001))),
        (Nat, out, "-p udp -m udp --dport 53 -j REDIRECT --to-ports 15053",
            vec![udp, port(53)], Target::RedirectTo(Port(15053))),
        (Mangle, istio::TPROXY, "-p tcp -j TPROXY --on-port 15006 --tproxy-mark 0x539",
            vec![tcp.clone()], Target::Tproxy { port: Port(15006), mark: 1337, mask: u32::MAX }),
        (Mangle, istio::TPROXY, "-p tcp -j TPROXY --on-port 15006 --tproxy-mark 0x111/0xfff",
            vec![tcp], Target::Tproxy { port: Port(15006), mark: 0x111, mask: 0xfff }),
        (Mangle, istio::DIVERT, "-j MARK --set-mark 1337", vec![], Target::SetMark { mark: 1337, mask: u32::MAX }),
        (Mangle, istio::DIVERT, "-j MARK --set-xmark 0x111/0xfff", vec![], Target::SetMark { mark: 0x111, mask: 0xfff }),
        (Mangle, pre, "-j CONNMARK --save-mark", vec![], Target::SaveMark),
        (Mangle, Chain::OUTPUT, "-j CONNMARK --restore-mark", vec![], Target::RestoreMark),
        (Mangle, istio::PRERT, "-j CONNMARK --set-xmark 0x111/0xfff", vec![], Target::SetConnMark { mark: 0x111, mask: 0xfff }),
        (Raw, Chain::OUTPUT, "-j CT --zone 1", vec![], Target::CtZone(1)),
    ]
}

fn lines_v4() -> Vec<Line> {
    let (table, chain) = (Table::Nat, istio::OUTPUT);
    vec![
        (table, chain, "-s 127.0.0.6 -j RETURN", vec![Match::Source(net("127.0.0.6/32"))], Target::Return),
        (table, chain, "-d 10.1.2.3/255.0.0.0 -j RETURN", vec![Match::to(net("10.1.2.3/8"))], Target::Return),
        (table, chain, "! -d 172.16.0.0/12 -j RETURN", vec![Match::not_to(net("172.16.0.0/12"))], Target::Return),
        (table, chain, "-d 192.0.2.0/25 -j RETURN", vec![Match::to(net("192.0.2.0/25"))], Target::Return),
        (table, chain, "-d 0.0.0.0/0 -j RETURN", vec![Match::to(net("0.0.0.0/0"))], Target::Return),
    ]
}

fn lines_v6() -> Vec<Line> {
    let (table, chain) = (Table::Nat, istio::OUTPUT);
    vec![
        (table, chain, "-s ::6 -j RETURN", vec![Match::Source(net("::6/128"))], Target::Return),
        (table, chain, "-d fd00::/8 -j RETURN", vec![Match::to(net("fd00::/8"))], Target::Return),
        (table, chain, "! -d ::1/128 -j RETURN", vec![Match::not_to(net("::1/128"))], Target::Return),
        (table, chain, "-d 2001:db8::/33 -j RETURN", vec![Match::to(net("2001:db8::/33"))], Target::Return),
    ]
}
