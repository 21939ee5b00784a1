//! The expectations: for each configuration, connections and the programs that must accept them.

use std::net::{IpAddr, SocketAddr};

use redirect::{
    CidrSelector, DnsCapture, InterceptionMode, OwnerGroups, PortSelector, Redirect, parse_cidrs, parse_interfaces,
};
use ruleset::{Family, Interface, Owner, Port};

/// A configuration with its rows.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) redirect: Redirect,
    pub(crate) ipv6: bool,
    pub(crate) rows: Vec<Row>,
}

/// The source of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) in_pod: bool,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// A destination, in either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// An address outside the pod, routed through `eth0`.
    Remote,
    /// Another address outside the pod, routed through `eth0`.
    Other,
    /// An address outside the pod, routed through `eth1`.
    Beyond,
    /// The pod's address on `eth0`.
    Pod,
    /// The pod's address on `eth1`.
    Pod1,
    /// 127.0.0.1 or ::1.
    Loopback,
    /// 127.1.2.3; IPv6 has no equivalent.
    FarLoopback,
    /// 127.0.0.6 or ::6.
    Passthrough,
}

impl Place {
    pub(crate) fn ip(self, family: Family) -> Option<IpAddr> {
        let (v4, v6) = match self {
            Self::Remote => ("198.51.100.7", "2001:db8::7"),
            Self::Other => ("198.51.100.8", "2001:db8::8"),
            Self::Beyond => ("203.0.113.9", "2001:db8:1::9"),
            Self::Pod => ("10.0.0.2", "fd00::2"),
            Self::Pod1 => ("10.0.1.2", "fd01::2"),
            Self::Loopback => ("127.0.0.1", "::1"),
            Self::FarLoopback => ("127.1.2.3", ""),
            Self::Passthrough => ("127.0.0.6", "::6"),
        };
        if family == Family::V4 { v4 } else { v6 }.parse().ok()
    }
}

/// A connection and its expected result.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) client: Client,
    pub(super) proto: &'static str,
    pub(super) to: Place,
    pub(super) port: u16,
    pub(super) source: Option<Place>,
    families: Families,
    accepted_by: (&'static str, u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Families {
    Both,
    Only(Family),
}

impl Client {
    const fn tcp(self, to: Place, port: u16) -> Connection {
        Connection { client: self, proto: "tcp", to, port, source: None, families: Families::Both }
    }

    const fn udp(self, to: Place, port: u16) -> Connection {
        Connection { proto: "udp", ..self.tcp(to, port) }
    }
}

/// A row without its expected result.
#[derive(Clone, Copy)]
struct Connection {
    client: Client,
    proto: &'static str,
    to: Place,
    port: u16,
    source: Option<Place>,
    families: Families,
}

impl Connection {
    const fn by_source(self, place: Place) -> Self {
        Self { source: Some(place), ..self }
    }

    const fn only(self, family: Family) -> Self {
        Self { families: Families::Only(family), ..self }
    }

    /// Expects the program `name`, which listens on `port`.
    const fn by(self, name: &'static str, port: u16) -> Row {
        let Self { client, proto, to, port: destination, source, families } = self;
        Row { client, proto, to, port: destination, source, families, accepted_by: (name, port) }
    }

    /// Expects the program `name` on the port of the connection, without redirection.
    const fn direct(self, name: &'static str) -> Row {
        let port = self.port;
        self.by(name, port)
    }
}

impl Row {
    /// Returns the arguments of the test program `connect` for this row.
    pub(crate) fn arguments(&self, family: Family) -> Vec<String> {
        let to = SocketAddr::new(self.to.ip(family).unwrap(), self.port);
        let source = self.source.and_then(|place| place.ip(family)).map(|ip| ip.to_string());
        [self.proto.to_owned(), to.to_string()].into_iter().chain(source).collect()
    }

    /// Returns the expected start of the response; `None` if the row does not apply to the family. For a connection
    /// from outside the pod, the source address must be preserved.
    pub(crate) fn wanted(&self, family: Family) -> Option<String> {
        if self.families != Families::Both && self.families != Families::Only(family) {
            return None;
        }
        let to = SocketAddr::new(self.to.ip(family)?, self.port);
        let (name, port) = self.accepted_by;
        let original = if self.proto == "udp" { "udp".to_owned() } else { to.to_string() };
        let source = match (self.client.in_pod, self.to, family) {
            (true, ..) => "",
            (false, Place::Pod1, Family::V4) => "10.0.1.1",
            (false, Place::Pod1, Family::V6) => "fd01::1",
            (false, _, Family::V4) => "10.0.0.1",
            (false, _, Family::V6) => "fd00::1",
        };
        Some(format!("{name} {port} for {original} from {source}"))
    }

    pub(crate) fn describe(&self, family: Family) -> String {
        let Client { in_pod, uid, gid } = self.client;
        format!("{uid}:{gid} in the {}: {}", if in_pod { "pod" } else { "world" }, self.arguments(family).join(" "))
    }
}

const APP: Client = id(1000, 1000);
const PROXY: Client = id(1337, 1337);
/// A user in the proxy's group.
const PROXY_GROUP: Client = id(1000, 1337);
const WORLD: Client = Client { in_pod: false, uid: 1000, gid: 1000 };

const fn id(uid: u32, gid: u32) -> Client {
    Client { in_pod: true, uid, gid }
}

use Place::{Beyond, FarLoopback, Loopback, Other, Passthrough, Pod, Pod1, Remote};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        nothing(),
        sidecar(),
        ipv4_pod(),
        outbound_ranges(),
        outbound_ranges_exclude(),
        loopback_range(),
        ports(),
        exclude_interface(),
        virtual_interface(),
        dns_all(),
        dns_servers(),
        tproxy(),
        tproxy_ports(),
        owner_groups_exclude(),
        owner_groups(),
        proxy_ids(),
    ]
}

fn case(name: &'static str, redirect: Redirect, rows: Vec<Row>) -> Case {
    Case { name, redirect: Redirect { dual_stack: true, ..redirect }, ipv6: true, rows }
}

/// The settings of an injected pod.
pub(crate) fn usual() -> Redirect {
    Redirect {
        inbound_ports: PortSelector::All,
        inbound_ports_exclude: [15020, 15021, 15090].map(Port).to_vec(),
        outbound_ports_exclude: vec![Port(15020)],
        outbound_cidrs: CidrSelector::All,
        ..Redirect::default()
    }
}

fn ranges(text: &str) -> Vec<ipnet::IpNet> {
    parse_cidrs("ranges", text).unwrap()
}

fn interfaces(text: &str) -> Vec<Interface> {
    parse_interfaces("interfaces", text).unwrap()
}

fn nothing() -> Case {
    let rows = vec![
        APP.tcp(Remote, 80).direct("remote"),
        WORLD.tcp(Pod, 8080).direct("app"),
        APP.tcp(Pod, 8080).direct("app"),
        PROXY.tcp(Passthrough, 15002).by_source(Loopback).by("proxy", 15006),
    ];
    case("nothing", Redirect::default(), rows)
}

/// The rows of [`usual`] that all modes and backends share.
fn usual_rows() -> Vec<Row> {
    vec![
        APP.tcp(Remote, 80).by("proxy", 15001),
        PROXY.tcp(Remote, 80).direct("remote"),
        PROXY_GROUP.tcp(Remote, 80).direct("remote"),
        APP.tcp(Remote, 15020).direct("remote"),
        APP.udp(Remote, 80).direct("remote"),
        APP.udp(Remote, 53).direct("remote"),
        WORLD.tcp(Pod, 8080).by("proxy", 15006),
        WORLD.tcp(Pod, 7).by("proxy", 15006),
        WORLD.udp(Pod, 8080).direct("app"),
        WORLD.tcp(Pod, 15020).direct("app"),
        WORLD.tcp(Pod, 15021).direct("app"),
        WORLD.tcp(Pod, 15090).direct("app"),
        WORLD.tcp(Pod1, 8080).by("proxy", 15006),
        APP.tcp(Loopback, 8080).direct("app"),
        APP.tcp(Pod, 8080).direct("app"),
        APP.tcp(Passthrough, 8080).direct("app"),
        PROXY.tcp(Loopback, 8080).direct("app"),
        PROXY.tcp(Pod, 8080).by("proxy", 15006),
        PROXY.tcp(Pod, 8080).by_source(Passthrough).direct("app"),
        PROXY.tcp(Passthrough, 15002).by_source(Loopback).by("proxy", 15006),
    ]
}

fn sidecar() -> Case {
    let mut rows = usual_rows();
    rows.extend([
        WORLD.tcp(Pod, 15008).direct("proxy"),
        PROXY.tcp(Pod, 15008).direct("proxy"),
        PROXY_GROUP.tcp(Pod, 8080).direct("app"),
    ]);
    case("sidecar", usual(), rows)
}

fn ipv4_pod() -> Case {
    let rows = vec![
        APP.tcp(Remote, 80).only(Family::V4).by("proxy", 15001),
        APP.tcp(Remote, 80).only(Family::V6).direct("remote"),
        WORLD.tcp(Pod, 8080).only(Family::V4).by("proxy", 15006),
        WORLD.tcp(Pod, 8080).only(Family::V6).direct("app"),
    ];
    Case { name: "ipv4_pod", redirect: usual(), ipv6: false, rows }
}

fn outbound_ranges() -> Case {
    let outbound_cidrs = CidrSelector::List(ranges("198.51.100.7/32,2001:db8::7/128"));
    let rows = vec![APP.tcp(Remote, 80).by("proxy", 15001), APP.tcp(Other, 80).direct("remote")];
    case("outbound_ranges", Redirect { outbound_cidrs, ..usual() }, rows)
}

fn outbound_ranges_exclude() -> Case {
    let outbound_cidrs_exclude = ranges("198.51.100.8/32,2001:db8::8/128");
    let rows = vec![APP.tcp(Remote, 80).by("proxy", 15001), APP.tcp(Other, 80).direct("remote")];
    case("outbound_ranges_exclude", Redirect { outbound_cidrs_exclude, ..usual() }, rows)
}

fn loopback_range() -> Case {
    let outbound_cidrs = CidrSelector::List(ranges("127.1.2.3/32"));
    let rows = vec![
        APP.tcp(FarLoopback, 8080).by("proxy", 15001),
        APP.tcp(Loopback, 8080).direct("app"),
        APP.tcp(Remote, 80).direct("remote"),
    ];
    case("loopback_range", Redirect { outbound_cidrs, ..usual() }, rows)
}

fn ports() -> Case {
    let redirect = Redirect {
        inbound_ports: PortSelector::List(vec![Port(8080)]),
        outbound_ports_include: vec![Port(9000), Port(15020)],
        outbound_cidrs: CidrSelector::None,
        ..usual()
    };
    let rows = vec![
        WORLD.tcp(Pod, 8080).by("proxy", 15006),
        WORLD.tcp(Pod, 9000).direct("app"),
        APP.tcp(Remote, 9000).by("proxy", 15001),
        APP.tcp(Remote, 80).direct("remote"),
        APP.tcp(Remote, 15020).direct("remote"),
    ];
    case("ports", redirect, rows)
}

fn exclude_interface() -> Case {
    let rows = vec![
        WORLD.tcp(Pod1, 8080).direct("app"),
        APP.tcp(Beyond, 80).direct("remote"),
        WORLD.tcp(Pod, 8080).by("proxy", 15006),
        APP.tcp(Remote, 80).by("proxy", 15001),
    ];
    case("exclude_interface", Redirect { exclude_interfaces: interfaces("eth1"), ..usual() }, rows)
}

fn virtual_interface() -> Case {
    let rows = vec![WORLD.tcp(Pod1, 8080).by("proxy", 15001), WORLD.tcp(Pod, 8080).by("proxy", 15006)];
    case("virtual_interface", Redirect { virtual_interfaces: interfaces("eth1"), ..usual() }, rows)
}

fn dns_all() -> Case {
    let rows = vec![
        APP.udp(Remote, 53).by("proxy", 15053),
        APP.tcp(Remote, 53).by("proxy", 15053),
        APP.udp(Loopback, 53).by("proxy", 15053),
        APP.tcp(Loopback, 53).by("proxy", 15053),
        PROXY.udp(Remote, 53).direct("remote"),
        PROXY.tcp(Remote, 53).direct("remote"),
        PROXY_GROUP.udp(Remote, 53).direct("remote"),
        APP.udp(Remote, 80).direct("remote"),
        APP.tcp(Remote, 80).by("proxy", 15001),
        WORLD.tcp(Pod, 8080).by("proxy", 15006),
        PROXY.tcp(Pod, 8080).by("proxy", 15006),
    ];
    case("dns_all", Redirect { dns: DnsCapture::All, ..usual() }, rows)
}

fn dns_servers() -> Case {
    let dns =
        DnsCapture::Servers { v4: vec!["198.51.100.7".parse().unwrap()], v6: vec!["2001:db8::7".parse().unwrap()] };
    let rows = vec![
        APP.udp(Remote, 53).by("proxy", 15053),
        APP.tcp(Remote, 53).by("proxy", 15053),
        APP.udp(Other, 53).direct("remote"),
        APP.tcp(Other, 53).by("proxy", 15001),
        PROXY.udp(Remote, 53).direct("remote"),
    ];
    case("dns_servers", Redirect { dns, ..usual() }, rows)
}

/// The case of TPROXY. In this mode Istio does not exempt the HBONE port, and treats a process in the proxy's group
/// like the proxy in connections to the pod itself.
fn tproxy() -> Case {
    let mut rows = usual_rows();
    rows.extend([
        WORLD.tcp(Pod, 15008).by("proxy", 15006),
        PROXY.tcp(Pod, 15008).by("proxy", 15006),
        PROXY_GROUP.tcp(Pod, 8080).by("proxy", 15006),
    ]);
    case("tproxy", Redirect { mode: InterceptionMode::Tproxy, ..usual() }, rows)
}

fn tproxy_ports() -> Case {
    let inbound_ports = PortSelector::List(vec![Port(8080)]);
    let rows = vec![WORLD.tcp(Pod, 8080).by("proxy", 15006), WORLD.tcp(Pod, 9000).direct("app")];
    case("tproxy_ports", Redirect { mode: InterceptionMode::Tproxy, inbound_ports, ..usual() }, rows)
}

fn owner_groups_exclude() -> Case {
    let owner_groups = OwnerGroups::AllBut(vec![Owner::Id(888)]);
    let rows = vec![id(1000, 888).tcp(Remote, 80).direct("remote"), APP.tcp(Remote, 80).by("proxy", 15001)];
    case("owner_groups_exclude", Redirect { owner_groups, ..usual() }, rows)
}

fn owner_groups() -> Case {
    let owner_groups = OwnerGroups::Only(vec![Owner::Id(888), Owner::Id(889)]);
    let rows = vec![
        id(1000, 888).tcp(Remote, 80).by("proxy", 15001),
        id(1000, 889).tcp(Remote, 80).by("proxy", 15001),
        APP.tcp(Remote, 80).direct("remote"),
    ];
    case("owner_groups", Redirect { owner_groups, ..usual() }, rows)
}

fn proxy_ids() -> Case {
    let redirect = Redirect { proxy_uids: vec![Owner::Id(2000)], proxy_gids: vec![Owner::Id(2001)], ..usual() };
    let rows = vec![
        id(2000, 2001).tcp(Remote, 80).direct("remote"),
        id(2000, 1000).tcp(Remote, 80).direct("remote"),
        id(1000, 2001).tcp(Remote, 80).direct("remote"),
        PROXY.tcp(Remote, 80).by("proxy", 15001),
        id(2000, 1000).tcp(Pod, 8080).by("proxy", 15006),
    ];
    case("proxy_ids", redirect, rows)
}
