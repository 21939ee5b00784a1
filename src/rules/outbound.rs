//! Which outbound connections go to the proxy. The first rule that matches decides: what is exempt comes first, then
//! what is redirected. UDP is never redirected, DNS aside.

use ipnet::IpNet;

use super::ruleset::{At, Chain, Families, Match, Proto, Rule, Table, Target};
use super::{DNS_PORT, ProxyOwner, loopback, passthrough, proxy_owners, twins};
use crate::redirect::{CidrSelector, Interface, Owner, OwnerGroups, Redirect};

fn output(matches: impl Into<Vec<Match>>, target: Target) -> Rule {
    Rule::new(Table::Nat, Chain::IstioOutput, matches, target)
}

fn on_lo() -> Match {
    Match::OutInterface(Interface::lo())
}

/// What is decided before DNS is looked at: exempt ports, the proxy's own traffic, exempt groups.
pub(super) fn before_dns(redirect: &Redirect, dns: bool) -> Vec<Rule> {
    let mut rules = vec![Rule::new(Table::Nat, Chain::Output, [], Target::Jump(Chain::IstioOutput))];
    for port in &redirect.outbound_ports_exclude {
        // UDP too, so that a DNS server on an exempt port is left alone.
        let of = |proto| output([Match::Protocol(proto), Match::port(*port)], Target::Return);
        rules.extend([of(Proto::Tcp), of(Proto::Udp)]);
    }
    // The proxy hands inbound connections to the application from this address.
    rules.extend(twins(|family| output([on_lo(), Match::Source(passthrough(family))], Target::Return)));
    let loopback_included = includes_loopback(&redirect.outbound_cidrs);
    for owner in proxy_owners(redirect) {
        rules.extend(proxy_traffic(redirect, &owner, dns, loopback_included));
    }
    rules.extend(groups(&redirect.owner_groups));
    rules
}

/// The traffic of one user or group that the proxy runs as.
fn proxy_traffic(redirect: &Redirect, owner: &ProxyOwner, dns: bool, loopback_included: bool) -> Vec<Rule> {
    let tunnel = redirect.inbound_tunnel_port;
    // DNS of the proxy's user must reach the DNS rules. Istio does so for users and not for groups.
    let ports = match owner {
        ProxyOwner::User(_) if dns => Match::NotDestinationPorts(vec![DNS_PORT, tunnel]),
        _ => Match::not_port(tunnel),
    };
    // Proxy → own Service address → own pod: inbound again, as if it came from outside.
    let to_self = |family| {
        let matches = [on_lo(), Match::not_to(loopback(redirect, family)), Match::tcp(), ports.clone(), owner.is()];
        output(matches, Target::Jump(Chain::IstioInRedirect))
    };
    let mut rules = twins(to_self).to_vec();
    if !loopback_included {
        // The application talking to itself over lo; its DNS is for the DNS rules to decide.
        let mut matches = vec![on_lo()];
        if dns {
            matches.extend([Match::tcp(), Match::not_port(DNS_PORT)]);
        }
        matches.push(owner.is_not());
        rules.push(output(matches, Target::Return));
    }
    // All other traffic of the proxy is its own: without this it would talk to itself for ever.
    rules.push(output([owner.is()], Target::Return));
    rules
}

fn groups(groups: &OwnerGroups) -> Vec<Rule> {
    let gid = |negated| move |group: &Owner| Match::Gid { owner: group.clone(), negated };
    match groups {
        OwnerGroups::AllBut(spared) => spared.iter().map(|g| output([gid(false)(g)], Target::Return)).collect(),
        // One rule: who is in none of them. No group at all spares everyone.
        OwnerGroups::Only(taken) => vec![output(taken.iter().map(gid(true)).collect::<Vec<_>>(), Target::Return)],
    }
}

/// What is decided after DNS: loopback and exempt ranges, then what is redirected.
pub(super) fn after_dns(redirect: &Redirect) -> Vec<Rule> {
    let mut rules = twins(|family| output([Match::to(loopback(redirect, family))], Target::Return)).to_vec();
    for net in v4_then_v6(&redirect.outbound_cidrs_exclude) {
        rules.push(output([Match::to(*net)], Target::Return).only(families_of(net)));
    }
    for port in &redirect.outbound_ports_include {
        rules.push(output([Match::tcp(), Match::port(*port)], Target::Jump(Chain::IstioRedirect)));
    }
    match &redirect.outbound_cidrs {
        CidrSelector::None => {}
        CidrSelector::All => {
            rules.push(output([], Target::Jump(Chain::IstioRedirect)));
            rules.extend(from_virtual_interfaces(redirect, None));
        }
        CidrSelector::List(nets) => {
            for net in v4_then_v6(nets) {
                rules.extend(from_virtual_interfaces(redirect, Some(net)));
                rules.push(output([Match::to(*net)], Target::Jump(Chain::IstioRedirect)).only(families_of(net)));
            }
        }
    }
    rules
}

/// What virtual machines send to `net`, or to anywhere. Inserted, for their interfaces are exempt by now.
fn from_virtual_interfaces(redirect: &Redirect, net: Option<&IpNet>) -> Vec<Rule> {
    let rule = |nic: &Interface| {
        let matches: Vec<Match> =
            std::iter::once(Match::InInterface(nic.clone())).chain(net.copied().map(Match::to)).collect();
        Rule::new(Table::Nat, Chain::Prerouting, matches, Target::Jump(Chain::IstioRedirect))
            .at(At::Place(1))
            .only(net.map_or(Families::Both, families_of))
    };
    redirect.virtual_interfaces.iter().map(rule).collect()
}

/// A loopback range that is to be redirected must not be returned as "the application talking to itself".
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
