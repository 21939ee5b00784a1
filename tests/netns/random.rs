//! Generates random redirections of pods, for comparisons in a real kernel.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestRunner};
use redirect::{CidrSelector, DnsCapture, InterceptionMode, OwnerGroups, PortSelector, Redirect, rules};
use ruleset::{Interface, Owner, Port, RuleSet};

/// The number of cases, fewer than proptest's default because each case creates and programs namespaces.
const CASES: u32 = 64;

/// Runs a check, which panics on failure, on the rules of random redirections.
pub(crate) fn check(check: impl Fn(&RuleSet)) {
    let kept = FileFailurePersistence::Direct(concat!(env!("CARGO_MANIFEST_DIR"), "/proptest-regressions/netns.txt"));
    let config = Config { cases: CASES, failure_persistence: Some(Box::new(kept)), ..Config::default() };
    let run = TestRunner::new(config).run(&rule_set(), |wanted| {
        check(&wanted);
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
}

fn rule_set() -> impl Strategy<Value = RuleSet> {
    (redirect(), any::<bool>()).prop_map(|(redirect, ipv6)| rules::build(&redirect, ipv6))
}

fn redirect() -> impl Strategy<Value = Redirect> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let ports = (selector(), vec(port(), 0..4), vec(port(), 0..4), vec(port(), 0..4));
    let cidrs = (cidr_selector(), vec(cidr(), 0..4), 8..=32_u8);
    let owners = (vec(owner(), 1..3), vec(owner(), 1..3), groups());
    let nics = (vec(nic(), 0..3), vec(nic(), 0..3));
    let marks = (1..u32::MAX, dns());
    (flags, ports, cidrs, owners, nics, marks).prop_map(|(flags, ports, cidrs, owners, nics, marks)| Redirect {
        mode: if flags.0 { InterceptionMode::Tproxy } else { InterceptionMode::Redirect },
        dual_stack: flags.1,
        drop_invalid: flags.2,
        inbound_ports: ports.0,
        inbound_ports_exclude: ports.1,
        outbound_ports_include: ports.2,
        outbound_ports_exclude: ports.3,
        outbound_cidrs: cidrs.0,
        outbound_cidrs_exclude: cidrs.1,
        loopback_v4: format!("127.0.0.1/{}", cidrs.2).parse().unwrap(),
        proxy_uids: owners.0,
        proxy_gids: owners.1,
        owner_groups: owners.2,
        exclude_interfaces: nics.0,
        virtual_interfaces: nics.1,
        tproxy_mark: marks.0,
        dns: marks.1,
        ..Redirect::default()
    })
}

fn port() -> impl Strategy<Value = Port> {
    any::<u16>().prop_map(Port)
}

fn selector() -> impl Strategy<Value = PortSelector> {
    prop_oneof![Just(PortSelector::None), Just(PortSelector::All), vec(port(), 1..4).prop_map(PortSelector::List)]
}

fn cidr() -> impl Strategy<Value = ipnet::IpNet> {
    let v4 = (any::<[u8; 4]>(), 0..=32_u8).prop_map(|(a, p)| ipnet::IpNet::new(a.into(), p).unwrap());
    let v6 = (any::<[u8; 16]>(), 0..=128_u8).prop_map(|(a, p)| ipnet::IpNet::new(a.into(), p).unwrap());
    prop_oneof![v4, v6]
}

fn cidr_selector() -> impl Strategy<Value = CidrSelector> {
    prop_oneof![Just(CidrSelector::None), Just(CidrSelector::All), vec(cidr(), 1..4).prop_map(CidrSelector::List)]
}

/// Generates a user or group id. The largest number is not a valid id (`(uid_t) -1`).
fn owner() -> impl Strategy<Value = Owner> {
    (0..u32::MAX).prop_map(Owner::Id)
}

fn groups() -> impl Strategy<Value = OwnerGroups> {
    let some = || vec(owner(), 0..3);
    prop_oneof![some().prop_map(OwnerGroups::AllBut), some().prop_map(OwnerGroups::Only)]
}

/// Generates names that end with a digit. Other names may be keywords of nft's language, such as `ct` or `lo`, which
/// the text for nft cannot contain as names. The kernel, to which the rules under test are sent, has no keywords.
fn nic() -> impl Strategy<Value = Interface> {
    "[a-z][a-z0-9_.-]{0,13}[0-9]".prop_map(|name| Interface::new(&name).unwrap())
}

fn dns() -> impl Strategy<Value = DnsCapture> {
    let v4 = option::of(any::<[u8; 4]>()).prop_map(|a| a.into_iter().map(Into::into).collect());
    let v6 = option::of(any::<[u8; 16]>()).prop_map(|a| a.into_iter().map(Into::into).collect());
    let servers = (v4, v6).prop_map(|(v4, v6)| DnsCapture::Servers { v4, v6 });
    prop_oneof![Just(DnsCapture::Off), Just(DnsCapture::All), servers]
}
