//! Tests of entering a netns, and of the addresses and routes that the programs read and set there.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use libtest_mimic::Trial;
use podnet::netns::{Error, Netns, addresses, routes};
use ruleset::{Family, MarkRoute, Routes};

use test_support::netns::{IPV6, TestNetns, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("visit::runs_in_the_netns_and_the_callers_stays", &[], runs_in_the_netns_and_the_callers_stays),
        trial("visit::panic_is_an_error", &[], panic_is_an_error),
        trial("visit::namespace_of_another_type_is_refused", &[], namespace_of_another_type_is_refused),
        trial("visit::the_own_netns_differs_from_another", &[], the_own_netns_differs_from_another),
        trial("addresses::are_in_the_kernels_order", &[IPV6], are_in_the_kernels_order),
        trial("addresses::own_end_of_a_point_to_point_link", &[IPV6], own_end_of_a_point_to_point_link),
        trial("routes::second_run_changes_nothing", &[IPV6], second_run_changes_nothing),
        trial("routes::missing_entries_are_reported_and_restored", &[IPV6], missing_entries_are_reported_and_restored),
        trial(
            "routes::a_narrower_rule_and_another_route_are_not_equivalent",
            &[IPV6],
            a_narrower_rule_and_another_route_are_not_equivalent,
        ),
        trial("routes::a_rule_with_a_further_selector_is_foreign", &[IPV6], a_rule_with_a_further_selector_is_foreign),
        trial("routes::a_foreign_default_route_is_refused", &[IPV6], a_foreign_default_route_is_refused),
        trial("routes::a_later_default_route_is_harmless", &[IPV6], a_later_default_route_is_harmless),
        trial(
            "routes::a_local_default_route_of_another_device_is_equivalent",
            &[IPV6],
            a_local_default_route_of_another_device_is_equivalent,
        ),
        trial(
            "routes::the_own_rule_is_removed_beside_a_narrower_one",
            &[IPV6],
            the_own_rule_is_removed_beside_a_narrower_one,
        ),
        trial("routes::istios_own_rule_is_equivalent", &[IPV6], istios_own_rule_is_equivalent),
        trial("routes::the_mark_rule_comes_before_others", &[IPV6], the_mark_rule_comes_before_others),
        trial("routes::removal_is_complete_and_idempotent", &[IPV6], removal_is_complete_and_idempotent),
        trial("routes::ipv6_disabled_matters_only_to_ipv6_pods", &[IPV6], ipv6_disabled_matters_only_to_ipv6_pods),
    ]
}

fn enter<T: Send>(path: &Path, visit: impl FnOnce() -> T + Send) -> Result<T, Error> {
    Netns::open(path)?.enter(visit)
}

fn own() -> std::path::PathBuf {
    fs::read_link("/proc/thread-self/ns/net").unwrap()
}

fn runs_in_the_netns_and_the_callers_stays() {
    let pod = TestNetns::new();
    let before = own();
    let inside = enter(&pod.path(), own).unwrap();
    assert_ne!(inside, before);
    assert_eq!(own(), before);
}

fn panic_is_an_error() {
    let pod = TestNetns::bare();
    let before = own();
    let error = enter(&pod.path(), || panic!("out of {}", "range")).unwrap_err();
    assert!(matches!(&error, Error::Panicked { message, .. } if message == "out of range"), "{error}");
    assert_eq!(own(), before);
}

fn namespace_of_another_type_is_refused() {
    let error = enter(Path::new("/proc/self/ns/mnt"), || ()).unwrap_err();
    assert!(matches!(error, Error::NotNetns { found: "a namespace of another type", .. }), "{error}");
}

fn the_own_netns_differs_from_another() {
    let pod = TestNetns::bare();
    let (own, pods) = (Netns::own().unwrap(), Netns::open(&pod.path()).unwrap());
    assert!(!pods.is_same(&own).unwrap());
    assert!(pods.is_same(&Netns::open(&pod.path()).unwrap()).unwrap());
    let there = enter(&pod.path(), || Netns::own().unwrap()).unwrap();
    assert!(there.is_same(&pods).unwrap() && !there.is_same(&own).unwrap());
    assert!(own.is_same(&Netns::open(Path::new("/proc/self/ns/net")).unwrap()).unwrap());
}

fn are_in_the_kernels_order() {
    let pod = TestNetns::new();
    for (link, addresses) in [("a0", ["2001:db8::1/64", "10.0.0.1/24"]), ("b0", ["fd00::2/64", "10.0.1.2/24"])] {
        pod.run("ip", &["link", "add", link, "type", "veth"]);
        for address in addresses {
            pod.run("ip", &["address", "add", address, "dev", link, "nodad"]);
        }
    }
    let seen: Vec<String> = pod.inside(addresses::read).unwrap().iter().map(IpAddr::to_string).collect();
    assert_eq!(seen, ["127.0.0.1", "10.0.0.1", "10.0.1.2", "::1", "2001:db8::1", "fd00::2"]);
}

fn own_end_of_a_point_to_point_link() {
    let pod = TestNetns::new();
    pod.run("ip", &["link", "add", "a0", "type", "veth"]);
    pod.run("ip", &["address", "add", "10.0.0.1", "peer", "10.0.0.9", "dev", "a0"]);
    let seen = pod.inside(addresses::read).unwrap();
    assert_eq!(seen, ["127.0.0.1", "10.0.0.1", "::1"].map(|text| text.parse::<IpAddr>().unwrap()));
}

const MARK_ROUTE: MarkRoute = MarkRoute::exact(1337, 133);
const ROUTES: Routes = Routes { passthrough: true, marked: Some(MARK_ROUTE) };

/// Returns the addresses, rules and routes of a netns that the tests compare, as iproute2 prints them.
fn state(pod: &TestNetns) -> String {
    let mut text = pod.run("ip", &["address", "show", "dev", "lo"]);
    for family in ["-4", "-6"] {
        text += &pod.run("ip", &[family, "rule"]);
        text += &pod.try_feed("ip", &[family, "route", "show", "table", "133"], "").unwrap_or_default();
    }
    text
}

fn second_run_changes_nothing() {
    let pod = TestNetns::new();
    let added = pod.inside(|| routes::apply(ROUTES, true)).unwrap();
    assert_eq!(added.len(), 5, "{added:?}");
    let first = state(&pod);
    for wanted in ["inet6 ::6/128", "from all fwmark 0x539 lookup 133", "local default dev lo"] {
        assert!(first.contains(wanted), "{wanted} is not in\n{first}");
    }
    assert_eq!(pod.inside(|| routes::apply(ROUTES, true)).unwrap(), []);
    assert_eq!(state(&pod), first);
}

fn missing_entries_are_reported_and_restored() {
    let pod = TestNetns::new();
    let all = pod.inside(|| routes::missing(ROUTES, true)).unwrap();
    assert_eq!(pod.inside(|| routes::apply(ROUTES, true)).unwrap(), all);
    let whole = state(&pod);
    let table = ["table", "133"];
    for (undo, entry) in [
        (vec!["address", "del", "::6/128", "dev", "lo"], routes::Entry::Passthrough),
        (vec!["-4", "rule", "del", "fwmark", "1337"], routes::Entry::Rule(Family::V4, MARK_ROUTE)),
        (vec!["-6", "rule", "del", "fwmark", "1337"], routes::Entry::Rule(Family::V6, MARK_ROUTE)),
        ([&["-4", "route", "flush"], &table[..]].concat(), routes::Entry::Route(Family::V4, MARK_ROUTE)),
        ([&["-6", "route", "flush"], &table[..]].concat(), routes::Entry::Route(Family::V6, MARK_ROUTE)),
    ] {
        assert_eq!(pod.inside(|| routes::missing(ROUTES, true)).unwrap(), []);
        pod.run("ip", &undo);
        for looked in [|| routes::missing(ROUTES, true), || routes::apply(ROUTES, true)] {
            assert_eq!(pod.inside(looked).unwrap(), [entry], "{undo:?}");
        }
        assert_eq!(state(&pod), whole, "{undo:?}");
    }
}

/// Existing rules and routes that are similar to ours but have another effect must not replace ours.
fn a_narrower_rule_and_another_route_are_not_equivalent() {
    let pod = TestNetns::new();
    pod.run("ip", &["rule", "add", "not", "fwmark", "1337", "lookup", "133", "priority", "77"]);
    pod.run("ip", &["rule", "add", "fwmark", "1337/0xffff", "lookup", "133"]);
    pod.run("ip", &["rule", "add", "from", "10.0.0.0/8", "fwmark", "1337", "lookup", "133"]);
    pod.run("ip", &["route", "add", "blackhole", "default", "table", "133", "metric", "7"]);
    pod.run("ip", &["route", "add", "local", "10.0.0.0/8", "dev", "lo", "table", "133"]);
    let before = state(&pod);
    assert_eq!(pod.inside(|| routes::apply(ROUTES, false)).unwrap().len(), 2);
    assert_eq!(pod.inside(|| routes::missing(ROUTES, false)).unwrap(), []);
    assert!(pod.inside(|| routes::remove(ROUTES)).unwrap());
    assert_eq!(state(&pod), before);
}

/// Foreign rules that match only a part of the marked packets must neither replace ours nor be removed with it.
fn a_rule_with_a_further_selector_is_foreign() {
    for selector in [
        "iif eth1",
        "oif eth1",
        "uidrange 0-1000",
        "ipproto 6",
        "ipproto 6 sport 80",
        "ipproto 17 dport 53-54",
        "tun_id 7",
        "suppress_prefixlength 0",
        "suppress_ifgroup 3",
    ] {
        for family in ["-4", "-6"] {
            let pod = TestNetns::new();
            let words = selector.split(' ').chain(["fwmark", "1337", "lookup", "133"]);
            pod.run("ip", &[family, "rule", "add"].into_iter().chain(words).collect::<Vec<_>>());
            let before = state(&pod);
            assert_eq!(pod.inside(|| routes::apply(ROUTES, true)).unwrap().len(), 5, "{selector}");
            assert_eq!(pod.inside(|| routes::missing(ROUTES, true)).unwrap(), [], "{selector}");
            assert!(pod.inside(|| routes::remove(ROUTES)).unwrap(), "{selector}");
            assert_eq!(state(&pod), before, "{selector}");
        }
    }
}

/// Creates a netns with the interface `net1` of a second network.
fn with_second_network() -> TestNetns {
    let pod = TestNetns::new();
    pod.run("ip", &["link", "add", "net1", "type", "veth", "peer", "name", "net1-peer"]);
    for link in ["net1", "net1-peer"] {
        pod.run("ip", &["link", "set", link, "up"]);
    }
    pod
}

/// Adds `ip route add ROUTE table 133`.
fn add_route(pod: &TestNetns, family: &str, route: &str) {
    let words = route.split(' ').chain(["table", "133"]);
    pod.run("ip", &[family, "route", "add"].into_iter().chain(words).collect::<Vec<_>>());
}

/// A default route that precedes ours delivers marked packets elsewhere. The kernel refuses ours if the metric is the
/// same; with IPv6, whose metric is 1024 by default, it accepts ours after a route with a lower metric.
fn a_foreign_default_route_is_refused() {
    for (family, route, named) in [
        ("-4", "default dev net1", Family::V4),
        ("-4", "blackhole default", Family::V4),
        ("-6", "default dev net1", Family::V6),
        ("-6", "blackhole default", Family::V6),
        ("-6", "default dev net1 metric 10", Family::V6),
    ] {
        let pod = with_second_network();
        add_route(&pod, family, route);
        if family == "-4" {
            add_route(&pod, family, "local default dev lo metric 7");
        }
        let entry = routes::Entry::Route(named, MARK_ROUTE);
        for _ in 0..2 {
            let error = pod.inside(|| routes::apply(ROUTES, true)).unwrap_err();
            assert!(matches!(error, Error::Shadowed { entry: found } if found == entry), "{route}: {error:?}");
            assert!(error.to_string().contains("of table 133"), "{error}");
        }
        assert!(pod.inside(|| routes::missing(ROUTES, true)).unwrap().contains(&entry), "{route}");
        assert!(!pod.inside(|| routes::present(ROUTES, true)).unwrap().contains(&entry), "{route}");
    }
}

fn a_later_default_route_is_harmless() {
    let pod = with_second_network();
    add_route(&pod, "-4", "default dev net1 metric 100");
    add_route(&pod, "-6", "default dev net1 metric 2048");
    assert_eq!(pod.inside(|| routes::apply(ROUTES, true)).unwrap().len(), 5);
    assert_eq!(pod.inside(|| routes::apply(ROUTES, true)).unwrap(), []);
    assert_eq!(pod.inside(|| routes::missing(ROUTES, true)).unwrap(), []);
    assert_eq!(pod.inside(|| routes::present(ROUTES, true)).unwrap().len(), 5);
}

/// A local route delivers marked packets to the proxy, whatever its device.
fn a_local_default_route_of_another_device_is_equivalent() {
    let pod = with_second_network();
    for family in ["-4", "-6"] {
        add_route(&pod, family, "local default dev net1");
    }
    pod.inside(|| routes::apply(ROUTES, true)).unwrap();
    assert_eq!(pod.inside(|| routes::missing(ROUTES, true)).unwrap(), []);
    assert_eq!(pod.inside(|| routes::present(ROUTES, true)).unwrap().len(), 5);
}

/// The kernel deletes a rule with further selectors for the message of the own rule, if both have the same priority.
fn the_own_rule_is_removed_beside_a_narrower_one() {
    let pod = TestNetns::new();
    for selector in [&["iif", "eth1"][..], &[]] {
        for family in ["-4", "-6"] {
            let rule = ["fwmark", "1337", "lookup", "133", "priority", "100"];
            pod.run("ip", &[&[family, "rule", "add"], selector, &rule].concat());
        }
    }
    assert!(pod.inside(|| routes::remove(ROUTES)).unwrap());
    assert_eq!(pod.inside(|| routes::present(ROUTES, true)).unwrap(), []);
}

fn istios_own_rule_is_equivalent() {
    let pod = TestNetns::new();
    for family in ["-4", "-6"] {
        pod.run("ip", &[family, "rule", "add", "fwmark", "1337", "lookup", "133", "priority", "77"]);
        pod.run("ip", &[family, "route", "add", "local", "default", "dev", "lo", "table", "133"]);
    }
    pod.run("ip", &["address", "add", "::6/128", "dev", "lo", "nodad"]);
    let before = state(&pod);
    assert_eq!(pod.inside(|| routes::apply(ROUTES, true)).unwrap(), []);
    assert_eq!(state(&pod), before);
}

/// The program must give its rule a priority before all existing rules, as `ip rule add` does. After another program's rule for all
/// packets, the kernel might never evaluate it.
fn the_mark_rule_comes_before_others() {
    let pods = [TestNetns::new(), TestNetns::new()];
    for pod in &pods {
        for family in ["-4", "-6"] {
            pod.run("ip", &[family, "rule", "add", "from", "all", "lookup", "main", "priority", "1000"]);
        }
    }
    let [ours, theirs] = &pods;
    ours.inside(|| routes::apply(ROUTES, true)).unwrap();
    for family in ["-4", "-6"] {
        theirs.run("ip", &[family, "rule", "add", "fwmark", "1337", "lookup", "133"]);
        let rules = ours.run("ip", &[family, "rule"]);
        assert!(rules.contains("999:\tfrom all fwmark 0x539 lookup 133"), "{rules}");
        assert_eq!(rules, theirs.run("ip", &[family, "rule"]));
    }
    assert_eq!(ours.inside(|| routes::apply(ROUTES, true)).unwrap(), []);
    assert!(ours.inside(|| routes::remove(ROUTES)).unwrap());
    let left = ours.run("ip", &["rule"]);
    assert!(!left.contains("fwmark") && left.contains("1000:"), "{left}");
}

fn removal_is_complete_and_idempotent() {
    let pod = TestNetns::new();
    let before = state(&pod);
    assert!(!pod.inside(|| routes::remove(ROUTES)).unwrap());
    pod.inside(|| routes::apply(ROUTES, true)).unwrap();
    for _ in 0..2 {
        pod.run("ip", &["rule", "add", "fwmark", "1337", "lookup", "133"]);
    }
    assert!(pod.inside(|| routes::remove(ROUTES)).unwrap());
    assert_eq!(state(&pod), before);
}

fn ipv6_disabled_matters_only_to_ipv6_pods() {
    let pod = TestNetns::new();
    pod.inside(|| fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1")).unwrap();
    assert_eq!(pod.inside(|| routes::apply(ROUTES, false)).unwrap().len(), 2);
    let error = pod.inside(|| routes::apply(ROUTES, true)).unwrap_err();
    assert!(matches!(error, Error::Ipv6Disabled { .. }), "{error:?}");
    assert!(pod.inside(|| routes::remove(ROUTES)).unwrap());
}
