//! Compares rendered rules with this project's own expected outputs, which cover every form of rule.
//!
//! `tests/rules/<case>/` holds input for a kernel (`restore.v4`, `restore.v6`, `nft`) and the rules that the
//! kernel then has: `save.v4` and `save.v6` in the format of `iptables-save` 1.8.9, with the table in front of each
//! rule. Both iptables backends result in the same rules.

#![expect(clippy::expect_used, reason = "the cases hold valid values")]
#![expect(clippy::disallowed_methods, reason = "expected texts are files")]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use contract::{annotation, proxy_env};
use libtest_mimic::Trial;
use podfacts::{PodFacts, ProxyContainer};
use redirect::annotations::{self, Interception};
use redirect::{
    CidrSelector, DnsCapture, InterceptionMode, OwnerGroups, PortSelector, Redirect, parse_cidrs, parse_interfaces,
    parse_loopback, parse_owners, parse_ports, rules,
};
use ruleset::{Family, Interface, Owner, Port, RuleSet, nft, restore};

use crate::same;

pub(crate) fn trials() -> Vec<Trial> {
    let tproxy = || Redirect { mode: InterceptionMode::Tproxy, tproxy_mark: 7, ..lists() };
    let cases: [(&'static str, Redirect); 4] = [
        ("lists", lists()),
        ("lists-tproxy", tproxy()),
        ("pod-dual-stack-dns", pod("REDIRECT")),
        ("pod-dual-stack-dns-tproxy", pod("TPROXY")),
    ];
    cases.into_iter().flat_map(|(name, redirect)| of_case(name, &redirect)).collect()
}

fn of_case(name: &str, redirect: &Redirect) -> Vec<Trial> {
    let rules = rules::build(redirect, true);
    let trial = |file: &str, actual: String| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rules").join(name).join(file);
        let saved = file.starts_with("save");
        Trial::test(format!("own/{name}/{file}"), move || {
            let expected = std::fs::read_to_string(&path)?;
            if saved { same(&by_chain(&expected), &by_chain(&actual)) } else { same(&expected, &actual) }
        })
    };
    vec![
        trial("restore.v4", restore::render(&rules, Family::V4)),
        trial("restore.v6", restore::render(&rules, Family::V6)),
        trial("save.v4", saved(&rules, Family::V4)),
        trial("save.v6", saved(&rules, Family::V6)),
        trial("nft", nft::render(&rules)),
    ]
}

/// Formats the rules of each chain as `iptables-save` does, with the table in front of each rule.
fn saved(rules: &RuleSet, family: Family) -> String {
    let chains = rules.chains(family);
    let lines = chains.iter().flat_map(|((table, _), rules)| {
        rules.iter().map(move |rule| format!("{} {}\n", table.as_str(), restore::save_form(rule, family)))
    });
    lines.collect()
}

/// Sorts rules by chain and keeps their order within a chain: the order of the chains is arbitrary.
fn by_chain(text: &str) -> String {
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    lines.sort_by_key(|line| line.split(' ').take(3).collect::<Vec<_>>());
    lines.concat()
}

/// Returns a pod's redirection in this mode, with the settings that [`lists`] lacks.
fn pod(mode: &str) -> Redirect {
    let owned = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let env = owned(&[
        (proxy_env::DNS_CAPTURE, "true"),
        (proxy_env::DUAL_STACK, "true"),
        (proxy_env::OWNER_GROUPS_EXCLUDE, "888,889"),
    ]);
    let annotations = owned(&[
        (annotation::INTERCEPTION_MODE, mode),
        (annotation::EXCLUDE_INTERFACES, "eth9"),
        (annotation::REROUTE_VIRTUAL_INTERFACES, "net1"),
    ]);
    let proxy = Some(ProxyContainer { env, ..ProxyContainer::default() });
    let facts = PodFacts { annotations, proxy, ..PodFacts::default() };
    match annotations::from_pod(facts.settings()).expect("annotations") {
        Interception::Redirect { redirect, .. } => *redirect,
        Interception::None => Redirect::default(),
    }
}

/// Returns a redirection in which every list setting has a value, with two users and two groups of the proxy.
fn lists() -> Redirect {
    Redirect {
        proxy_uids: owners("1337,4"),
        proxy_gids: owners("1337,2"),
        inbound_ports: PortSelector::parse("case", "80,8080").expect("ports"),
        outbound_ports_include: ports("32000,31000"),
        outbound_ports_exclude: ports("15020,9"),
        outbound_cidrs: CidrSelector::List(cidrs("2001:db8::1/32,10.1.2.3/8,0.0.0.0/0,::/0,2001:db8::5/128")),
        outbound_cidrs_exclude: cidrs("10.9.9.9/16,192.0.2.1/32,2001:db8:1::/48"),
        exclude_interfaces: nics("not-istio-nic,eth9.1"),
        virtual_interfaces: nics("net1,k6t-net_1"),
        dns: DnsCapture::Servers {
            v4: vec![Ipv4Addr::new(127, 0, 0, 53), Ipv4Addr::new(10, 96, 0, 10)],
            v6: vec![Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0x7f00, 0x35), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0xa)],
        },
        drop_invalid: true,
        owner_groups: OwnerGroups::Only(owners("202,303")),
        loopback_v4: parse_loopback("case", "127.0.0.1/8").expect("range"),
        ..Redirect::default()
    }
}

fn ports(text: &str) -> Vec<Port> {
    parse_ports("case", text).expect("ports")
}

fn cidrs(text: &str) -> Vec<ipnet::IpNet> {
    parse_cidrs("case", text).expect("ranges")
}

fn nics(text: &str) -> Vec<Interface> {
    parse_interfaces("case", text).expect("interfaces")
}

fn owners(text: &str) -> Vec<Owner> {
    parse_owners("case", text).expect("ids")
}
