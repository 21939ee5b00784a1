//! The test cases of Istio's package `capture`, which its iptables and nft tests share: a name, what differs from the
//! base configuration, and whether the pod has IPv6.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

use std::net::{Ipv4Addr, Ipv6Addr};

use redirect::{
    CidrSelector, DnsCapture, InterceptionMode, OwnerGroups, PortSelector, Redirect, parse_cidrs, parse_interfaces,
    parse_loopback, parse_owners, parse_ports,
};
use ruleset::{Interface, Owner};

const V4: bool = false;
const V6: bool = true;

/// Returns the configuration of a test case by its name, and whether the pod has IPv6; `None` for an unknown name.
pub fn configuration(name: &str) -> Option<(Redirect, bool)> {
    let base = Redirect::default;
    Some(match name {
        "empty" => (base(), V4),
        "ipv6-empty-inbound-ports" => (base(), V6),
        "ip-range" => (Redirect { outbound_cidrs_exclude: cidrs("1.1.0.0/16"), ..dns_ids("9.9.0.0/16") }, V4),
        "loopback-outbound-iprange" => (dns_ids("127.1.2.3/32"), V4),
        "tproxy" => (tproxy_dns(), V6),
        "ipv6-inbound-ports" => (inbound("4000,5000"), V6),
        "ipv6-virt-interfaces" => (Redirect { virtual_interfaces: nics("eth0,eth1"), ..inbound("4000,5000") }, V6),
        "ipv6-ipnets" => (v6_nets(), V6),
        "ipv6-uid-gid" => (ids(v6_nets()), V6),
        "ipv6-outbound-ports" => (outbound("32000,31000"), V6),
        "outbound-ports-include" => (outbound("32000,31000"), V4),
        "kube-virt-interfaces" => (Redirect { virtual_interfaces: nics("eth1,eth2"), ..to("*") }, V4),
        "ipnets" => (to("10.0.0.0/8"), V4),
        "ipnets-with-kube-virt-interfaces" => {
            (Redirect { virtual_interfaces: nics("eth1,eth2"), ..to("10.0.0.0/8") }, V4)
        }
        "inbound-ports-include" => (inbound("32000,31000"), V4),
        "inbound-ports-wildcard" => (inbound("*"), V4),
        "inbound-ports-tproxy" => (tproxy(inbound("32000,31000")), V4),
        "inbound-ports-wildcard-tproxy" => (tproxy(inbound("*")), V4),
        "inbound-ports-empty-tproxy" => (tproxy(base()), V4),
        "dns-uid-gid" => {
            let resolver = Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0x7f00, 0x35);
            (ids(Redirect { dns: servers(vec![resolver]), ..base() }), V6)
        }
        "ipv6-dns-uid-gid" => (ids(without_resolver(base())), V6),
        "outbound-owner-groups" => (only_groups(), V4),
        "outbound-owner-groups-exclude" => (but_groups(), V4),
        "ipv6-dns-outbound-owner-groups" => (without_resolver(only_groups()), V6),
        "ipv6-dns-outbound-owner-groups-exclude" => (without_resolver(but_groups()), V6),
        "basic-exclude-nic" => (Redirect { exclude_interfaces: nics("not-istio-nic"), ..base() }, V4),
        "drop-invalid" => (Redirect { drop_invalid: true, ..base() }, V4),
        "host-ipv4-loopback-cidr" => {
            (Redirect { loopback_v4: parse_loopback("case", "127.0.0.1/8").expect("range"), ..base() }, V4)
        }
        _ => return None,
    })
}

fn inbound(ports: &str) -> Redirect {
    Redirect { inbound_ports: PortSelector::parse("case", ports).expect("ports"), ..Redirect::default() }
}

fn outbound(ports: &str) -> Redirect {
    Redirect { outbound_ports_include: parse_ports("case", ports).expect("ports"), ..Redirect::default() }
}

fn to(cidrs: &str) -> Redirect {
    Redirect { outbound_cidrs: CidrSelector::parse("case", cidrs).expect("ranges"), ..Redirect::default() }
}

fn tproxy(redirect: Redirect) -> Redirect {
    Redirect { mode: InterceptionMode::Tproxy, ..redirect }
}

/// Sets two users and two groups of the proxy.
fn ids(redirect: Redirect) -> Redirect {
    let ids = |a, b| vec![Owner::Id(a), Owner::Id(b)];
    Redirect { proxy_uids: ids(3, 4), proxy_gids: ids(1, 2), ..redirect }
}

fn servers(v6: Vec<Ipv6Addr>) -> DnsCapture {
    DnsCapture::Servers { v4: vec![Ipv4Addr::new(127, 0, 0, 53)], v6 }
}

fn without_resolver(redirect: Redirect) -> Redirect {
    Redirect { dns: DnsCapture::Servers { v4: Vec::new(), v6: Vec::new() }, ..redirect }
}

fn dns_ids(include: &str) -> Redirect {
    ids(Redirect { dns: servers(Vec::new()), ..to(include) })
}

fn tproxy_dns() -> Redirect {
    tproxy(Redirect {
        inbound_ports: PortSelector::All,
        outbound_cidrs_exclude: cidrs("1.1.0.0/16"),
        exclude_interfaces: nics("not-istio-nic"),
        dns: servers(Vec::new()),
        ..to("9.9.0.0/16")
    })
}

fn v6_nets() -> Redirect {
    Redirect {
        inbound_ports_exclude: parse_ports("case", "6000,7000,").expect("ports"),
        virtual_interfaces: nics("eth0,eth1"),
        outbound_cidrs: CidrSelector::List(cidrs("2001:db8::/32")),
        outbound_cidrs_exclude: cidrs("2001:db8::/32"),
        ..inbound("4000,5000")
    }
}

fn only_groups() -> Redirect {
    Redirect { owner_groups: OwnerGroups::Only(groups("java,202")), ..Redirect::default() }
}

fn but_groups() -> Redirect {
    Redirect { owner_groups: OwnerGroups::AllBut(groups("888,ftp")), ..Redirect::default() }
}

fn cidrs(text: &str) -> Vec<ipnet::IpNet> {
    parse_cidrs("case", text).expect("ranges")
}

fn nics(text: &str) -> Vec<Interface> {
    parse_interfaces("case", text).expect("interfaces")
}

fn groups(text: &str) -> Vec<Owner> {
    parse_owners("case", text).expect("groups")
}
