//! Compares the rules that our netlink batches create in a real kernel with those that iptables' and nft's own tools
//! create.

use std::fmt::Write as _;

use libtest_mimic::Trial;
use netfilter::{Backend, Outcome, Session};
use redirect::ambient::AmbientRedirect;
use redirect::{OwnerGroups, Redirect, istio, parse_interfaces, rules};
use ruleset::{Family, Owner, RuleSet, nft, restore};

use crate::random;
use test_cases::configuration;
use test_support::netns::{self as support, TestNetns};

const IPTABLES: &[&str] =
    &["iptables-nft-restore", "iptables-nft-save", "ip6tables-nft-restore", "ip6tables-nft-save", "nft"];
const NFT: &[&str] = &["nft"];
pub(crate) const LEGACY: &[&str] = &[
    "iptables-legacy",
    "iptables-legacy-save",
    "iptables-legacy-restore",
    "ip6tables-legacy-save",
    "ip6tables-legacy-restore",
];

/// The names of the test cases of Istio's package `capture`.
pub(crate) const CASES: [&str; 28] = [
    "empty",
    "ipv6-empty-inbound-ports",
    "ip-range",
    "loopback-outbound-iprange",
    "tproxy",
    "ipv6-inbound-ports",
    "ipv6-virt-interfaces",
    "ipv6-ipnets",
    "ipv6-uid-gid",
    "ipv6-outbound-ports",
    "outbound-ports-include",
    "kube-virt-interfaces",
    "ipnets",
    "ipnets-with-kube-virt-interfaces",
    "inbound-ports-include",
    "inbound-ports-wildcard",
    "inbound-ports-tproxy",
    "inbound-ports-wildcard-tproxy",
    "inbound-ports-empty-tproxy",
    "dns-uid-gid",
    "ipv6-dns-uid-gid",
    "outbound-owner-groups",
    "outbound-owner-groups-exclude",
    "ipv6-dns-outbound-owner-groups",
    "ipv6-dns-outbound-owner-groups-exclude",
    "basic-exclude-nic",
    "drop-invalid",
    "host-ipv4-loopback-cidr",
];

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for name in CASES {
        trials.push(support::trial(format!("encoder/iptables/{name}"), IPTABLES, move || iptables(&case(name))));
        trials.push(support::trial(format!("encoder/nft/{name}"), NFT, move || native(&case(name))));
        trials.push(support::trial(format!("encoder/legacy/{name}"), LEGACY, move || legacy(&case(name))));
    }
    for (name, rules) in ambient_cases() {
        let [for_nft, for_legacy] = [rules.clone(), rules.clone()];
        trials.push(support::trial(format!("encoder/iptables/{name}"), IPTABLES, move || iptables(&rules)));
        trials.push(support::trial(format!("encoder/nft/{name}"), NFT, move || native(&for_nft)));
        trials.push(support::trial(format!("encoder/legacy/{name}"), LEGACY, move || legacy(&for_legacy)));
    }
    trials.push(support::trial("encoder/iptables/random", IPTABLES, || random::check(iptables)));
    trials.push(support::trial("encoder/nft/random", NFT, || random::check(native)));
    trials
}

/// Returns the rules of a case, with IDs in place of group names that this machine does not have.
pub(crate) fn case(name: &str) -> RuleSet {
    let (redirect, ipv6) = configuration(name).expect("a case of Istio's");
    rules::build(&numbered(redirect), ipv6)
}

fn numbered(redirect: Redirect) -> Redirect {
    let number = |owner: Owner| match owner {
        Owner::Name(name) => Owner::Id(4000 + u32::from(name.as_bytes()[0])),
        id @ Owner::Id(_) => id,
    };
    let all = |owners: Vec<Owner>| owners.into_iter().map(number).collect();
    let owner_groups = match redirect.owner_groups {
        OwnerGroups::AllBut(groups) => OwnerGroups::AllBut(all(groups)),
        OwnerGroups::Only(groups) => OwnerGroups::Only(all(groups)),
    };
    Redirect { owner_groups, ..redirect }
}

/// Returns two sets of rules for ambient pods: one with all features in both families, and one for a gateway, without
/// DNS capture, in one family.
pub(crate) fn ambient_cases() -> [(&'static str, RuleSet); 2] {
    let virtual_interfaces = parse_interfaces("case", "net1,k6t-net_1").unwrap();
    let all = AmbientRedirect { dns: true, virtual_interfaces, ..AmbientRedirect::default() };
    let gateway = AmbientRedirect { inbound: false, ..AmbientRedirect::default() };
    [("ambient", rules::ambient::build(&all, true)), ("ambient-ingress", rules::ambient::build(&gateway, false))]
}

/// Programs rules as the plugin does.
pub(crate) fn program(netns: &TestNetns, backend: Backend, wanted: &RuleSet) -> Outcome {
    netns.inside(|| {
        let mut session = Session::new(backend, &istio::OWNED);
        let live = session.observe().unwrap();
        session.apply(&netfilter::diff(wanted, &live).unwrap()).unwrap()
    })
}

fn iptables(wanted: &RuleSet) {
    let (ours, theirs) = (TestNetns::new(), TestNetns::new());
    program(&ours, Backend::IptablesNft, wanted);
    theirs.feed("iptables-nft-restore", &["--noflush"], &restore::render(wanted, Family::V4));
    theirs.feed("ip6tables-nft-restore", &["--noflush"], &restore::render(wanted, Family::V6));
    let expected = saved(&theirs);
    assert!(expected.contains("-A ISTIO_OUTPUT "), "the tools loaded nothing:\n{expected}");
    assert_same(&expected, &saved(&ours));
}

fn legacy(wanted: &RuleSet) {
    let (ours, theirs) = (TestNetns::new(), TestNetns::new());
    program(&ours, Backend::IptablesLegacy, wanted);
    theirs.feed("iptables-legacy-restore", &["--noflush"], &restore::render(wanted, Family::V4));
    if wanted.ipv6 {
        theirs.feed("ip6tables-legacy-restore", &["--noflush"], &restore::render(wanted, Family::V6));
    }
    assert_same(&saved_legacy(&theirs), &saved_legacy(&ours));
}

fn native(wanted: &RuleSet) {
    let (ours, theirs) = (TestNetns::new(), TestNetns::new());
    program(&ours, Backend::NativeNft, wanted);
    theirs.feed("nft", &["-f", "-"], &nft::render(wanted));
    for args in [&["list", "ruleset"][..], &["--debug=netlink", "list", "ruleset"]] {
        assert_same(&without_handles(&theirs.run("nft", args)), &without_handles(&ours.run("nft", args)));
    }
}

/// Returns the output of `iptables-save` and `ip6tables-save` for nf_tables, without the time of day.
pub(crate) fn saved(netns: &TestNetns) -> String {
    let mut text = String::new();
    for program in ["iptables-nft-save", "ip6tables-nft-save"] {
        let printed = netns.run(program, &[]);
        for line in printed.lines().filter(|l| !l.starts_with("# ")) {
            writeln!(text, "{line}").unwrap();
        }
    }
    text
}

/// Like `saved`, for iptables-legacy.
pub(crate) fn saved_legacy(netns: &TestNetns) -> String {
    let texts = ["iptables-legacy-save", "ip6tables-legacy-save"].map(|program| netns.run(program, &[]));
    texts.concat().lines().filter(|l| !l.starts_with('#')).map(|l| format!("{l}\n")).collect()
}

/// Removes the handles from the headings of nft's netlink listing: they depend on the order of creation.
fn without_handles(text: &str) -> String {
    let is_heading = |l: &str| l.starts_with("inet ");
    let shorten = |l: &str| match is_heading(l) {
        true => l.split(' ').take(3).collect::<Vec<_>>().join(" "),
        false => l.to_owned(),
    };
    text.lines().map(|l| shorten(l) + "\n").collect()
}

/// Fails with the lines that only one side has.
pub(crate) fn assert_same(expected: &str, actual: &str) {
    if expected == actual {
        return;
    }
    let only = |these: &str, those: &str| {
        let missing = these.lines().filter(|l| !those.lines().any(|t| t == *l));
        missing.collect::<Vec<_>>().join("\n  ")
    };
    panic!("only expected:\n  {}\nonly got:\n  {}\nall got:\n{actual}", only(expected, actual), only(actual, expected));
}
