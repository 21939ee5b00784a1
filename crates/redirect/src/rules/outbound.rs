//! Rules that select the outbound connections to redirect. The first match applies, so exemptions precede redirection.
//! UDP is never redirected, except for DNS.

use crate::istio;
use ipnet::IpNet;
use ruleset::{At, Chain, Families, Interface, Match, Owner, Proto, Rule, Table, Target};

use super::parts::{DNS_PORT, ProxyOwner, loopback, passthrough, per_family, proxy_owners};
use crate::{CidrSelector, OwnerGroups, Redirect};

fn output(matches: impl Into<Vec<Match>>, target: Target) -> Rule {
    Rule::new(Table::Nat, istio::OUTPUT, matches, target)
}

fn on_lo() -> Match {
    Match::OutInterface(Interface::lo())
}

/// Returns the rules before the DNS rules: exempt ports, the proxy's own traffic, exempt groups.
pub(super) fn before_dns(redirect: &Redirect, dns: bool) -> Vec<Rule> {
    let mut rules = vec![Rule::new(Table::Nat, Chain::OUTPUT, [], Target::Jump(istio::OUTPUT))];
    for port in &redirect.outbound_ports_exclude {
        // Also UDP, so that a DNS server on an exempt port is not captured.
        let of = |proto| output([Match::Protocol(proto), Match::port(*port)], Target::Return);
        rules.extend([of(Proto::Tcp), of(Proto::Udp)]);
    }
    // Packets from the passthrough address are exempt: the proxy uses it as the source address of the inbound
    // connections that it forwards to the application.
    rules.extend(per_family(|family| output([on_lo(), Match::Source(passthrough(family))], Target::Return)));
    let loopback_included = includes_loopback(&redirect.outbound_cidrs);
    for owner in proxy_owners(redirect) {
        rules.extend(proxy_traffic(redirect, &owner, dns, loopback_included));
    }
    rules.extend(groups(&redirect.owner_groups));
    rules
}

/// Returns the rules for the traffic of one of the proxy's users or groups.
fn proxy_traffic(redirect: &Redirect, owner: &ProxyOwner, dns: bool, loopback_included: bool) -> Vec<Rule> {
    let tunnel = redirect.inbound_tunnel_port;
    // DNS of the proxy's user must reach the DNS rules. Istio does this for users, not for groups.
    let ports = match owner {
        ProxyOwner::User(_) if dns => Match::NotDestinationPorts(vec![DNS_PORT, tunnel]),
        _ => Match::not_port(tunnel),
    };
    // A connection of the proxy to its own pod, such as through the address of a Service, leaves through lo although
    // its destination is not loopback. It is handled as inbound traffic from outside of the pod.
    let to_self = |family| {
        let matches = [on_lo(), Match::not_to(loopback(redirect, family)), Match::tcp(), ports.clone(), owner.is()];
        output(matches, Target::Jump(istio::IN_REDIRECT))
    };
    let mut rules = per_family(to_self).to_vec();
    if !loopback_included {
        // Connections of the application to itself over lo are exempt. If DNS is captured, its DNS traffic is not
        // exempt, so that it reaches the DNS rules.
        let mut matches = vec![on_lo()];
        if dns {
            matches.extend([Match::tcp(), Match::not_port(DNS_PORT)]);
        }
        matches.push(owner.is_not());
        rules.push(output(matches, Target::Return));
    }
    // All other traffic of the proxy is exempt: if it were redirected, the proxy would connect to itself forever.
    rules.push(output([owner.is()], Target::Return));
    rules
}

fn groups(groups: &OwnerGroups) -> Vec<Rule> {
    let gid = |negated| move |group: &Owner| Match::Gid { owner: group.clone(), negated };
    match groups {
        OwnerGroups::AllBut(spared) => spared.iter().map(|g| output([gid(false)(g)], Target::Return)).collect(),
        // A single rule exempts traffic whose owner is in none of the listed groups. With an empty list it exempts all
        // traffic.
        OwnerGroups::Only(taken) => vec![output(taken.iter().map(gid(true)).collect::<Vec<_>>(), Target::Return)],
    }
}

/// Returns the rules after the DNS rules: loopback and exempt ranges, then redirection.
pub(super) fn after_dns(redirect: &Redirect) -> Vec<Rule> {
    let mut rules = per_family(|family| output([Match::to(loopback(redirect, family))], Target::Return)).to_vec();
    for net in v4_then_v6(&redirect.outbound_cidrs_exclude) {
        rules.push(output([Match::to(*net)], Target::Return).only(families_of(net)));
    }
    for port in &redirect.outbound_ports_include {
        rules.push(output([Match::tcp(), Match::port(*port)], Target::Jump(istio::REDIRECT)));
    }
    match &redirect.outbound_cidrs {
        CidrSelector::None => {}
        CidrSelector::All => {
            rules.push(output([], Target::Jump(istio::REDIRECT)));
            rules.extend(from_virtual_interfaces(redirect, None));
        }
        CidrSelector::List(nets) => {
            for net in v4_then_v6(nets) {
                rules.extend(from_virtual_interfaces(redirect, Some(net)));
                rules.push(output([Match::to(*net)], Target::Jump(istio::REDIRECT)).only(families_of(net)));
            }
        }
    }
    rules
}

/// Returns the rules that redirect packets of virtual machines whose destination is in `net`, or all of them. These rules
/// are inserted at the start of the chain, before the rules that exempt the interfaces.
fn from_virtual_interfaces(redirect: &Redirect, net: Option<&IpNet>) -> Vec<Rule> {
    let rule = |nic: &Interface| {
        let matches: Vec<Match> =
            std::iter::once(Match::InInterface(nic.clone())).chain(net.copied().map(Match::to)).collect();
        Rule::new(Table::Nat, Chain::PREROUTING, matches, Target::Jump(istio::REDIRECT))
            .at(At::Place(1))
            .only(net.map_or(Families::Both, families_of))
    };
    redirect.virtual_interfaces.iter().map(rule).collect()
}

/// Whether the address of a listed range is a loopback address. Then the rule that exempts the application's own
/// loopback connections is omitted, so that they can be redirected.
fn includes_loopback(cidrs: &CidrSelector) -> bool {
    matches!(cidrs, CidrSelector::List(nets) if nets.iter().any(|net| net.addr().to_canonical().is_loopback()))
}

fn families_of(net: &IpNet) -> Families {
    match net {
        IpNet::V4(_) => Families::V4,
        IpNet::V6(_) => Families::V6,
    }
}

fn v4_then_v6(nets: &[IpNet]) -> impl Iterator<Item = &IpNet> {
    let v4 = nets.iter().filter(|n| matches!(n, IpNet::V4(_)));
    v4.chain(nets.iter().filter(|n| matches!(n, IpNet::V6(_))))
}
