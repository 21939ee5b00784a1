//! Tests of the rules for ambient pods: which program accepts a connection, with each backend; reconciling and removal.

use std::fs;
use std::net::SocketAddr;

use libtest_mimic::Trial;
use netfilter::Backend;
use podnet::converge::{self, Change, Difference, OnDifference, Options, View};
use redirect::ambient::AmbientRedirect;
use redirect::{Redirect, istio};
use ruleset::{Family, Interface};

use crate::truth::table::Place::{self, Beyond, FarLoopback, Loopback, Other, Pod, Pod1, Remote};
use crate::truth::topology::{Server, Topology, configure};
use test_support::netns::{IPV6, NFT_COMPAT, TestNetns, by, families, trial};

/// The mark of ztunnel's sockets.
const ZTUNNEL: u32 = 0x539;
/// The mark of packets that reply to ztunnel.
const REPLY: u32 = 0x111;
const PROBE: [&str; 2] = ["169.254.7.127", "fd16:9254:7127:1337:ffff:ffff:ffff:ffff"];

const BACKENDS: [(&str, Backend, &[&str]); 3] = [
    // The program chooses the backend, because no setting forces one.
    ("own-chosen", Backend::IptablesNft, &[]),
    ("own-nftables", Backend::NativeNft, &[]),
    ("own-legacy", Backend::IptablesLegacy, &["iptables-legacy-restore"]),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    App,
    /// A socket in the pod with this mark and, if a place is given, with its address as source address.
    Marked(u32, Option<Place>),
    World,
    /// The kubelet, whose source address the rules in the node's netns have replaced.
    Kubelet,
}

use Client::{App, Kubelet, Marked, World};

/// A connection (client, protocol, destination, port), and the program that must accept it with that program's port.
#[derive(Clone, Copy, Debug)]
struct Row(Client, &'static str, Place, u16, &'static str, u16);

struct Case {
    name: &'static str,
    redirect: AmbientRedirect,
    rows: Vec<Row>,
}

fn cases() -> Vec<Case> {
    let usual = AmbientRedirect { ipv6: true, dns: true, ..AmbientRedirect::default() };
    let virtual_interfaces = vec![Interface::new("eth1").unwrap()];
    vec![
        Case { name: "usual", redirect: usual.clone(), rows: usual_rows() },
        Case {
            name: "ingress",
            redirect: AmbientRedirect { inbound: false, ..usual.clone() },
            rows: vec![
                Row(World, "tcp", Pod, 8080, "app", 8080),
                Row(World, "tcp", Pod, 15008, "ztunnel", 15008),
                Row(Kubelet, "tcp", Pod, 8080, "app", 8080),
                Row(App, "tcp", Remote, 80, "ztunnel", 15001),
                Row(Marked(ZTUNNEL, Some(Remote)), "tcp", Pod, 8080, "app", 8080),
            ],
        },
        Case {
            name: "without_dns",
            redirect: AmbientRedirect { dns: false, ..usual.clone() },
            rows: vec![
                Row(App, "udp", Remote, 53, "remote", 53),
                Row(App, "tcp", Remote, 53, "ztunnel", 15001),
                Row(World, "tcp", Pod, 8080, "ztunnel", 15006),
            ],
        },
        Case {
            name: "interface_of_a_machine",
            redirect: AmbientRedirect { virtual_interfaces, ..usual },
            rows: vec![
                Row(World, "tcp", Pod1, 8080, "ztunnel", 15001),
                Row(World, "tcp", Pod, 8080, "ztunnel", 15006),
                Row(App, "tcp", Beyond, 80, "ztunnel", 15001),
            ],
        },
    ]
}

fn usual_rows() -> Vec<Row> {
    vec![
        Row(App, "tcp", Remote, 80, "ztunnel", 15001),
        Row(App, "tcp", Remote, 15008, "ztunnel", 15001),
        Row(App, "udp", Remote, 80, "remote", 80),
        // DNS is captured, except on lo. DNS to other addresses of 127.0.0.0/8 is captured only over TCP, as in Istio.
        Row(App, "udp", Remote, 53, "ztunnel", 15053),
        Row(App, "udp", Other, 53, "ztunnel", 15053),
        Row(App, "tcp", Remote, 53, "ztunnel", 15053),
        Row(App, "udp", Loopback, 53, "app", 53),
        Row(App, "tcp", Loopback, 53, "app", 53),
        Row(App, "tcp", FarLoopback, 53, "ztunnel", 15053),
        // Connections within the pod.
        Row(App, "tcp", Loopback, 8080, "app", 8080),
        Row(App, "tcp", Pod, 8080, "app", 8080),
        Row(App, "udp", Pod, 8080, "app", 8080),
        // Connections of ztunnel itself. Bits of the mark outside of the mask do not matter.
        Row(Marked(ZTUNNEL, None), "tcp", Remote, 80, "remote", 80),
        Row(Marked(ZTUNNEL | 0x1000, None), "tcp", Remote, 80, "remote", 80),
        Row(Marked(ZTUNNEL + 1, None), "tcp", Remote, 80, "ztunnel", 15001),
        Row(Marked(ZTUNNEL, None), "udp", Remote, 53, "remote", 53),
        Row(Marked(ZTUNNEL, None), "tcp", Remote, 53, "remote", 53),
        Row(Marked(ZTUNNEL, None), "tcp", Loopback, 8080, "app", 8080),
        // ztunnel connects with the client's address. The replies to this address are delivered to ztunnel in the pod.
        Row(Marked(ZTUNNEL, Some(Remote)), "tcp", Pod, 8080, "app", 8080),
        Row(Marked(ZTUNNEL, Some(Beyond)), "tcp", Pod, 9000, "app", 9000),
        // Packets with the mark of replies are delivered locally.
        Row(Marked(REPLY, None), "tcp", Remote, 9000, "app", 9000),
        // Connections from other machines.
        Row(World, "tcp", Pod, 8080, "ztunnel", 15006),
        Row(World, "tcp", Pod, 7, "ztunnel", 15006),
        Row(World, "tcp", Pod1, 8080, "ztunnel", 15006),
        Row(World, "tcp", Pod, 15008, "ztunnel", 15008),
        Row(World, "udp", Pod, 8080, "app", 8080),
        Row(Kubelet, "tcp", Pod, 8080, "app", 8080),
    ]
}

pub(crate) fn trials() -> Vec<Trial> {
    const COMPAT: &[&str] = &[NFT_COMPAT, "iptables-nft", "iptables-nft-save", "ip6tables-nft-save"];
    let mut trials = Vec::new();
    for (word, backend, programs) in BACKENDS {
        for case in cases() {
            let title = format!("ambient::{}::{word}", case.name);
            trials.push(trial(title, programs, move || hold(&case, backend)));
        }
        let title = |what: &str| format!("ambient::{what}::{word}");
        trials.push(trial(title("a_second_call_changes_nothing"), programs, move || second_call(backend)));
        trials.push(trial(title("a_difference_is_corrected"), programs, move || difference(backend)));
        trials.push(trial(title("removal_leaves_nothing"), programs, move || removal(backend)));
    }
    trials.push(trial("ambient::foreign_rules_and_routes_stay", COMPAT, foreign));
    trials.push(trial("ambient::without_ipv6_on_lo_only_ipv4_is_redirected", &[IPV6], without_ipv6));
    trials.push(trial("ambient::routes_return_with_ipv6_on_lo", &[IPV6], ipv6_returns));
    trials.push(trial("ambient::the_table_of_the_node_stays", &["nft"], table_of_the_node));
    trials.push(trial("ambient::the_chain_of_the_node_stays", COMPAT, chain_of_the_node));
    trials
}

fn reconciling(backend: Backend) -> Options {
    Options { on_difference: OnDifference::Reconcile, ..by(backend) }
}

fn apply(pod: &TestNetns, redirect: &AmbientRedirect, backend: Backend) -> Change {
    pod.inside(|| converge::apply(&redirect.desired(), reconciling(backend))).unwrap().change
}

/// Checks every row of a case in all address families, and fails with all wrong rows.
fn hold(case: &Case, backend: Backend) {
    let topology = Topology::new();
    let probes =
        PROBE.map(|probe| format!("address add {probe} dev lo{}\n", if probe.contains(':') { " nodad" } else { "" }));
    configure(&topology.world, &probes.concat());
    assert_eq!(apply(&topology.pod, &case.redirect, backend), Change::Added);
    let _servers = serve(&topology);
    let mut wrong = Vec::new();
    for &family in families() {
        for row in &case.rows {
            let Some(wanted) = wanted(row, family) else { continue };
            let response = connect(&topology, row, family);
            if !response.starts_with(&wanted) {
                wrong.push(format!("{row:?} {family:?}\n    wanted {wanted:?}\n    but it is {response:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} by {backend:?}:\n{}", case.name, wrong.join("\n"));
}

fn serve(topology: &Topology) -> [Server; 3] {
    let ports = ["tcp/15001", "tcp/15006", "tcp/15008", "tcp/15053", "udp/127.0.0.1:15053", "udp/[::1]:15053"];
    // ztunnel's double runs as root, because a mark needs CAP_NET_ADMIN.
    [topology.start_proxy("ztunnel", &format!("0/{ZTUNNEL}"), &ports), topology.start_app(), topology.start_remote()]
}

fn probe(family: Family) -> &'static str {
    PROBE[usize::from(family == Family::V6)]
}

fn connect(topology: &Topology, row: &Row, family: Family) -> String {
    let Row(client, proto, to, port, ..) = *row;
    let to = SocketAddr::new(to.ip(family).unwrap(), port).to_string();
    let any = if family == Family::V4 { "0.0.0.0" } else { "::" };
    let source = |place: Option<Place>| place.map_or(any.to_owned(), |place| place.ip(family).unwrap().to_string());
    let (netns, user, from) = match client {
        App => (&topology.pod, 1000, vec![]),
        World => (&topology.world, 1000, vec![]),
        Kubelet => (&topology.world, 1000, vec![probe(family).to_owned()]),
        Marked(mark, place) => (&topology.pod, 0, vec![source(place), mark.to_string()]),
    };
    Topology::connect_as(netns, &[vec![proto.to_owned(), to], from].concat(), user, user)
}

/// Returns the expected start of the response, with the client's address if it is fixed; `None` if no response is expected.
fn wanted(row: &Row, family: Family) -> Option<String> {
    let Row(client, proto, to, destination, name, port) = *row;
    // The kernel sends no IPv4 reply from a source address that the pod does not have.
    if client == Marked(REPLY, None) && family == Family::V4 {
        return None;
    }
    let to = SocketAddr::new(to.ip(family)?, destination);
    let original = if proto == "udp" { "udp".to_owned() } else { to.to_string() };
    let source = match client {
        Marked(_, Some(place)) => place.ip(family)?.to_string(),
        Kubelet => probe(family).to_owned(),
        _ => String::new(),
    };
    Some(format!("{name} {port} for {original} from {source}"))
}

fn everything() -> AmbientRedirect {
    let virtual_interfaces = vec![Interface::new("tap0").unwrap()];
    AmbientRedirect { ipv6: true, dns: true, virtual_interfaces, ..AmbientRedirect::default() }
}

/// Returns the routing rules and the routing table for marked packets, as iproute2 prints them.
fn routing(pod: &TestNetns) -> String {
    let of_family = |family: &Family| {
        let family = if *family == Family::V4 { "-4" } else { "-6" };
        let table = pod.try_feed("ip", &[family, "route", "show", "table", "100"], "").unwrap_or_default();
        pod.run("ip", &[family, "rule"]) + &table
    };
    families().iter().map(of_family).collect()
}

fn second_call(backend: Backend) {
    let pod = TestNetns::new();
    assert_eq!(apply(&pod, &everything(), backend), Change::Added);
    let before = routing(&pod);
    let count = |text: &str| before.matches(text).count();
    assert_eq!(count("32764:\tfrom all fwmark 0x111/0xfff lookup 100"), families().len(), "{before}");
    assert_eq!(count("local default dev lo"), families().len(), "{before}");
    assert_eq!(apply(&pod, &everything(), backend), Change::None);
    assert_eq!(routing(&pod), before);
}

/// Rules of another configuration and a missing routing rule must be reported and reconciled.
fn difference(backend: Backend) {
    let pod = TestNetns::new();
    apply(&pod, &AmbientRedirect { inbound: false, dns: false, ..everything() }, backend);
    pod.run("ip", &["rule", "del", "priority", "32764"]);
    let Change::Reconciled(found) = apply(&pod, &everything(), backend) else { panic!("nothing was reconciled") };
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    let missing = ["`fwmark 0x111/0xfff lookup 100 priority 32764` is missing", "--to-ports 15006", "--to-ports 15053"];
    for part in missing {
        assert!(found.iter().any(|text| text.contains(part)), "{part:?} is not in {found:#?}");
    }
    assert_eq!(apply(&pod, &everything(), backend), Change::None);
}

fn removal(backend: Backend) {
    let pod = TestNetns::new();
    let before = routing(&pod);
    apply(&pod, &everything(), backend);
    for _ in 0..2 {
        pod.inside(|| converge::cleanup(&everything().desired(), &istio::OWNED)).unwrap();
        assert_eq!(routing(&pod), before);
        let mut left = converge_saved(&pod);
        left.retain(|line| line.starts_with("-A") || line.contains("ISTIO_") || line.contains("istio-"));
        assert_eq!(left, Vec::<String>::new());
    }
    assert_eq!(apply(&pod, &everything(), backend), Change::Added);
}

/// Returns the lines that [`converge::saved`] reads in each family.
fn converge_saved(pod: &TestNetns) -> Vec<String> {
    let of_family = |family: &Family| pod.inside(|| converge::saved(*family, &istio::OWNED)).unwrap();
    let texts = families().iter().flat_map(of_family).map(|(_, text)| text);
    texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn foreign() {
    let pod = TestNetns::new();
    for args in [
        &["-t", "nat", "-N", "THEIRS"][..],
        &["-t", "nat", "-A", "OUTPUT", "-d", "10.1.2.3", "-j", "THEIRS"],
        &["-t", "mangle", "-A", "PREROUTING", "-i", "eth7", "-j", "ACCEPT"],
    ] {
        pod.run("iptables-nft", args);
    }
    pod.run("ip", &["rule", "add", "fwmark", "0x111/0xfff", "lookup", "100", "priority", "77"]);
    pod.run("ip", &["rule", "add", "fwmark", "0x111", "lookup", "100", "priority", "32764"]);
    pod.run("ip", &["route", "add", "local", "10.0.0.0/8", "dev", "lo", "table", "100"]);
    let rules = |pod: &TestNetns| {
        let mut lines: Vec<_> = converge_saved(pod).into_iter().filter(|line| line.starts_with("-A")).collect();
        lines.sort();
        lines
    };
    let before = (rules(&pod), routing(&pod));
    assert_eq!(apply(&pod, &everything(), Backend::IptablesNft), Change::Added);
    assert_ne!(routing(&pod), before.1);
    pod.inside(|| converge::cleanup(&everything().desired(), &istio::OWNED)).unwrap();
    assert_eq!((rules(&pod), routing(&pod)), before);
}

/// The table by which Istio's agent, in nftables mode, changes the source address of the kubelet's probes on the node.
const NODE_TABLE: &str = "\
table inet istio-ambient-nat {
\tset istio-inpod-probes-v4 {
\t\ttype ipv4_addr
\t\telements = { 10.9.0.2 }
\t}

\tchain postrouting {
\t\ttype nat hook postrouting priority 100; policy accept;
\t\tmeta l4proto tcp skuid 0 ip daddr @istio-inpod-probes-v4 counter snat ip to 169.254.7.127
\t}
}
";

/// Istio's table in the node's netns, which has the name of one of a pod's tables, must not be treated as a pod's rules.
fn table_of_the_node() {
    let node = TestNetns::new();
    node.feed("nft", &["-f", "-"], NODE_TABLE);
    let listed = || node.run("nft", &["list", "table", "inet", "istio-ambient-nat"]);
    let before = listed();
    for backend in [Backend::NativeNft, Backend::IptablesNft] {
        assert_eq!(differences(&node, backend), [Difference::NoRules], "{backend:?}");
    }
    let saved = node.inside(|| converge::saved(Family::V4, &istio::OWNED)).unwrap();
    assert!(saved.iter().all(|(_, text)| !text.contains("SNAT") && !text.contains("POSTROUTING")), "{saved:?}");
    node.inside(|| converge::cleanup(&everything().desired(), &istio::OWNED)).unwrap();
    assert_eq!(listed(), before);
    let redirect = Redirect::default();
    let options = Options { on_difference: OnDifference::Reconcile, ..by(Backend::NativeNft) };
    node.run("ip", &["address", "add", "10.9.0.3/32", "dev", "lo"]);
    assert_eq!(node.inside(|| converge::apply(&redirect.desired(), options)).unwrap().change, Change::Added);
    assert_eq!(listed(), before);
    node.inside(|| converge::cleanup(&redirect.desired(), &istio::OWNED)).unwrap();
    assert_eq!(listed(), before);
    assert_eq!(node.run("nft", &["list", "tables"]), "table inet istio-ambient-nat\n");
}

/// The chain that Istio's agent, in iptables mode, adds to the node's table `nat` must not be treated as a pod's rules.
fn chain_of_the_node() {
    let node = TestNetns::new();
    for args in [
        &["-N", "ISTIO_POSTRT"][..],
        &["-I", "POSTROUTING", "1", "-j", "ISTIO_POSTRT"],
        &["-A", "ISTIO_POSTRT", "-p", "tcp", "-j", "SNAT", "--to-source", PROBE[0]],
    ] {
        node.run("iptables-nft", &[&["-t", "nat"], args].concat());
    }
    let rules = || node.run("iptables-nft-save", &["-t", "nat"]).lines().filter(|l| l.starts_with("-A")).count();
    assert_eq!(differences(&node, Backend::IptablesNft), [Difference::NoRules]);
    for _ in 0..2 {
        node.inside(|| converge::cleanup(&everything().desired(), &istio::OWNED)).unwrap();
        assert_eq!(rules(), 2);
        assert_eq!(apply(&node, &everything(), Backend::IptablesNft), Change::Added);
    }
}

fn check(netns: &TestNetns, backend: Backend) -> Vec<Difference> {
    netns.inside(|| View::take(by(backend)).unwrap().check(&everything().desired())).unwrap().differences
}

/// Returns the differences except differences in routes.
fn differences(netns: &TestNetns, backend: Backend) -> Vec<Difference> {
    let mut found = check(netns, backend);
    found.retain(|difference| !matches!(difference, Difference::Route(_)));
    found
}

/// When IPv6 is disabled on `lo`, the kernel deletes the IPv6 routes. They must be reported and restored once IPv6 is enabled again.
fn ipv6_returns() {
    let pod = TestNetns::new();
    let apply = || apply(&pod, &everything(), Backend::NativeNft);
    assert_eq!(apply(), Change::Added);
    let before = routing(&pod);
    disable_ipv6(&pod, "1");
    assert_ne!(routing(&pod), before);
    assert_eq!(apply(), Change::None);
    disable_ipv6(&pod, "0");
    let missing = "IPv6 route `local default dev lo` of table 100 is missing";
    assert_eq!(converge::list(&check(&pod, Backend::NativeNft)), missing);
    assert_eq!(converge::list(apply().reconciled()), missing);
    assert_eq!(routing(&pod), before);
    assert_eq!(apply(), Change::None);
}

fn disable_ipv6(pod: &TestNetns, value: &str) {
    pod.inside(|| fs::write("/proc/sys/net/ipv6/conf/lo/disable_ipv6", value)).unwrap();
}

fn without_ipv6() {
    let pod = TestNetns::new();
    disable_ipv6(&pod, "1");
    let done = pod.inside(|| converge::apply(&everything().desired(), reconciling(Backend::IptablesNft))).unwrap();
    assert_eq!((done.ipv6, done.change), (false, Change::Added));
    assert!(!pod.run("ip", &["-6", "rule"]).contains("fwmark"));
    assert_eq!(apply(&pod, &everything(), Backend::IptablesNft), Change::None);
}
