//! The rules in the netns of an ambient pod, which redirect to the listeners that ztunnel has there.
//!
//! ztunnel connects to the application with the client's source address and marks its packets with [`PROXY_MARK`]. The
//! connection is marked with [`CONN_MARK`], its replies get that mark, and a routing rule delivers them to ztunnel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::istio;
use contract::ambient::{CONN_MARK, MARK_MASK, PROXY_MARK};
use contract::port;
use ipnet::IpNet;
use ruleset::{Chain, Family, Interface, Match, Port, Proto, Rule, RuleSet, Table, Target};

use super::parts::{DNS_PORT, per_family};
use crate::ambient::AmbientRedirect;

/// Zone of the DNS traffic between ztunnel and its upstream resolvers.
const ZONE_UPSTREAM: u16 = 1;

/// Builds the rules; `ipv6` is whether they cover IPv6, too.
pub fn build(redirect: &AmbientRedirect, ipv6: bool) -> RuleSet {
    let mut rules = jumps(redirect);
    rules.extend(redirect.virtual_interfaces.iter().flat_map(from_virtual_machine));
    rules.push(Rule::new(
        Table::Mangle,
        istio::PRERT,
        [of_proxy()],
        Target::SetConnMark { mark: CONN_MARK, mask: MARK_MASK },
    ));
    rules.extend(probes(redirect));
    if redirect.inbound {
        rules.extend(per_family(inbound));
    }
    let replies = [Match::ConnMark { mark: CONN_MARK, mask: MARK_MASK, negated: false }];
    rules.push(Rule::new(Table::Mangle, istio::OUTPUT, replies, Target::RestoreMark));
    if redirect.dns {
        rules.extend(dns());
    }
    rules.extend(outbound());
    RuleSet { ipv6, layout: &istio::AMBIENT, rules }
}

/// Returns the jumps from built-in chains to Istio's chains, in Istio's order.
fn jumps(redirect: &AmbientRedirect) -> Vec<Rule> {
    let from_prerouting = |table| Rule::new(table, Chain::PREROUTING, [], Target::Jump(istio::PRERT));
    let from_output = |table| Rule::new(table, Chain::OUTPUT, [], Target::Jump(istio::OUTPUT));
    let mut rules = vec![from_prerouting(Table::Mangle), from_output(Table::Mangle), from_output(Table::Nat)];
    if redirect.dns {
        rules.extend([from_prerouting(Table::Raw), from_output(Table::Raw)]);
    }
    rules.push(from_prerouting(Table::Nat));
    rules
}

/// Returns the rules for connections of a virtual machine in the pod, which arrive in PREROUTING and are outbound.
fn from_virtual_machine(interface: &Interface) -> [Rule; 2] {
    let rule = |target| nat(istio::PRERT, [Match::InInterface(interface.clone()), Match::tcp()], target);
    [rule(to_outbound()), rule(Target::Return)]
}

/// Returns the rules that exempt the kubelet's probes and the replies to them.
fn probes(redirect: &AmbientRedirect) -> Vec<Rule> {
    let probe = |family| match family {
        Family::V4 => host(redirect.probe_v4.into()),
        Family::V6 => host(redirect.probe_v6.into()),
    };
    let accept = |chain, address| nat(chain, [address, Match::tcp(), Match::Extension(Proto::Tcp)], Target::Accept);
    let to_pod = per_family(|family| accept(istio::PRERT, Match::Source(probe(family))));
    let from_pod = per_family(|family| accept(istio::OUTPUT, Match::to(probe(family))));
    to_pod.into_iter().filter(|_| redirect.inbound).chain(from_pod).collect()
}

/// Returns the rule that redirects inbound connections, except HBONE and ztunnel's own connections.
fn inbound(family: Family) -> Rule {
    let matches = [not_loopback(family), Match::tcp(), Match::not_port(Port(port::TUNNEL)), not_of_proxy()];
    nat(istio::PRERT, matches, Target::RedirectTo(Port(port::INBOUND)))
}

/// Returns the rules that redirect the application's DNS queries. ztunnel's own queries have a separate conntrack zone:
/// without it, reuse of a UDP port by queries of the application and of ztunnel would mix up their connections.
fn dns() -> Vec<Rule> {
    let udp = || [Match::Protocol(Proto::Udp), not_of_proxy(), Match::Extension(Proto::Udp), Match::port(DNS_PORT)];
    let to_ztunnel = || Target::RedirectTo(Port(port::DNS));
    let off_loopback = std::iter::once(Match::NotOutInterface(Interface::lo())).chain(udp()).collect::<Vec<_>>();
    let mut rules = vec![nat(istio::OUTPUT, off_loopback, to_ztunnel())];
    rules.extend(per_family(|family| {
        let matches = [not_loopback(family), Match::tcp(), Match::port(DNS_PORT), not_of_proxy()];
        nat(istio::OUTPUT, matches, to_ztunnel())
    }));
    let zone = |chain, mark, port| {
        let matches = [Match::Protocol(Proto::Udp), mark, Match::Extension(Proto::Udp), port];
        Rule::new(Table::Raw, chain, matches, Target::CtZone(ZONE_UPSTREAM))
    };
    rules.push(zone(istio::OUTPUT, of_proxy(), Match::port(DNS_PORT)));
    rules.push(zone(istio::PRERT, not_of_proxy(), Match::SourcePort(DNS_PORT)));
    rules
}

/// Returns the rules that redirect outbound connections, except replies to ztunnel and traffic on `lo`.
fn outbound() -> Vec<Rule> {
    let reply = Match::Mark { mark: CONN_MARK, mask: MARK_MASK, negated: false };
    let mut rules = vec![nat(istio::OUTPUT, [Match::tcp(), reply], Target::Accept)];
    rules.extend(per_family(|family| {
        let matches = [not_loopback(family), Match::OutInterface(Interface::lo())];
        nat(istio::OUTPUT, matches, Target::Accept)
    }));
    rules.extend(per_family(|family| {
        nat(istio::OUTPUT, [not_loopback(family), Match::tcp(), not_of_proxy()], to_outbound())
    }));
    rules
}

fn nat(chain: Chain, matches: impl Into<Vec<Match>>, target: Target) -> Rule {
    Rule::new(Table::Nat, chain, matches, target)
}

fn to_outbound() -> Target {
    Target::RedirectTo(Port(port::OUTBOUND))
}

/// Returns the match on packets that ztunnel's sockets send.
fn of_proxy() -> Match {
    Match::Mark { mark: PROXY_MARK, mask: MARK_MASK, negated: false }
}

fn not_of_proxy() -> Match {
    Match::Mark { mark: PROXY_MARK, mask: MARK_MASK, negated: true }
}

fn not_loopback(family: Family) -> Match {
    Match::not_to(match family {
        Family::V4 => host(Ipv4Addr::LOCALHOST.into()),
        Family::V6 => host(Ipv6Addr::LOCALHOST.into()),
    })
}

fn host(address: IpAddr) -> IpNet {
    address.into()
}

#[cfg(test)]
mod tests {
    use ruleset::Families;

    use super::*;

    fn rules(redirect: &AmbientRedirect) -> Vec<Rule> {
        build(redirect, true).rules
    }

    fn on() -> AmbientRedirect {
        AmbientRedirect { dns: true, ..AmbientRedirect::default() }
    }

    #[test]
    fn ingress_mode_leaves_inbound_connections_alone() {
        let redirects_inbound = |r: &Rule| r.target == Target::RedirectTo(Port(port::INBOUND));
        let exempts_probes = |r: &Rule| r.matches.iter().any(|m| matches!(m, Match::Source(_)));
        let count =
            |redirect: &AmbientRedirect, what: fn(&Rule) -> bool| rules(redirect).into_iter().filter(what).count();
        let ingress = AmbientRedirect { inbound: false, ..on() };
        assert_eq!((count(&on(), redirects_inbound), count(&on(), exempts_probes)), (2, 2));
        assert_eq!((count(&ingress, redirects_inbound), count(&ingress, exempts_probes)), (0, 0));
        assert_eq!(rules(&on()).len() - rules(&ingress).len(), 4);
    }

    #[test]
    fn without_dns_capture_the_table_raw_is_not_used() {
        let is_dns = |r: &&Rule| r.table == Table::Raw || r.matches.contains(&Match::port(DNS_PORT));
        assert_eq!(rules(&AmbientRedirect::default()).iter().filter(is_dns).count(), 0);
        // The rules of DNS are two jumps, three redirections and two conntrack zones.
        assert_eq!(rules(&on()).iter().filter(is_dns).count(), 7);
    }

    #[test]
    fn every_redirection_spares_ztunnel_or_a_virtual_machine() {
        let nic = vec![Interface::new("tap0").unwrap()];
        let all = rules(&AmbientRedirect { virtual_interfaces: nic, ..on() });
        let redirections = all.iter().filter(|r| matches!(r.target, Target::RedirectTo(_)));
        let mut count = 0;
        for rule in redirections {
            let of_machine = rule.matches.iter().any(|m| matches!(m, Match::InInterface(_)));
            assert!(rule.matches.contains(&not_of_proxy()) || of_machine, "{rule:?}");
            count += 1;
        }
        assert_eq!(count, 8);
    }

    #[test]
    fn a_rule_that_names_an_address_is_of_that_family_alone() {
        for rule in rules(&on()) {
            let of = |net: &IpNet| if matches!(net, IpNet::V4(_)) { Families::V4 } else { Families::V6 };
            let named = rule.matches.iter().find_map(|m| match m {
                Match::Source(net) | Match::Destination { net, .. } => Some(of(net)),
                _ => None,
            });
            assert_eq!(rule.families, named.unwrap_or(Families::Both), "{rule:?}");
        }
    }
}
