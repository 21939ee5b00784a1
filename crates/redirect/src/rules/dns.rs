//! Redirection of DNS to the agent's DNS proxy, and conntrack zones: without them, reuse of a UDP port by queries of
//! the application and of the agent would mix up their connections.

use std::net::IpAddr;

use crate::istio;
use ipnet::IpNet;
use ruleset::{Chain, Families, Match, Port, Proto, Rule, Table, Target};

use super::parts::{DNS_PORT, proxy_owners};
use crate::{DnsCapture, Redirect};

/// Zone of the traffic between the agent and its upstream resolvers.
const ZONE_UPSTREAM: u16 = 1;
/// Zone of the traffic between the application and the agent.
const ZONE_AGENT: u16 = 2;

/// The original destination of captured DNS traffic: one resolver, or any.
#[derive(Clone, Copy)]
struct Resolver(Option<IpNet>);

impl Resolver {
    fn families(self) -> Families {
        match self.0 {
            None => Families::Both,
            Some(IpNet::V4(_)) => Families::V4,
            Some(IpNet::V6(_)) => Families::V6,
        }
    }

    fn rule(self, table: Table, chain: Chain, port: [Match; 2], side: fn(IpNet) -> Match, target: Target) -> Rule {
        let matches: Vec<Match> = port.into_iter().chain(self.0.map(side)).collect();
        Rule::new(table, chain, matches, target).only(self.families())
    }
}

/// Returns the rules of DNS capture; none if it is off or there is no resolver.
pub(super) fn rules(redirect: &Redirect) -> Vec<Rule> {
    let resolvers = resolvers(&redirect.dns);
    let Some(families) = families(&resolvers) else {
        return Vec::new();
    };
    let jump = |table, from, to| Rule::new(table, from, [], Target::Jump(to));
    let mut rules = vec![
        jump(Table::Raw, Chain::OUTPUT, istio::OUTPUT_DNS),
        jump(Table::Nat, istio::OUTPUT, istio::OUTPUT_DNS).only(families),
    ];
    for proto in [Proto::Tcp, Proto::Udp] {
        let query = [Match::Protocol(proto), Match::port(DNS_PORT)];
        let agent = Target::RedirectTo(Port(contract::port::DNS));
        let to_agent = |r: &Resolver| r.rule(Table::Nat, istio::OUTPUT_DNS, query.clone(), Match::to, agent.clone());
        rules.extend(resolvers.iter().map(to_agent));
    }
    rules.extend(own_zones(redirect));
    rules.push(jump(Table::Raw, Chain::PREROUTING, istio::INBOUND).only(families));
    rules.extend(resolvers.iter().flat_map(|r| zones(*r)));
    rules
}

/// Returns the rules that assign zones to the agent's own packets: queries to upstream, responses to the application.
fn own_zones(redirect: &Redirect) -> Vec<Rule> {
    let zone = |port, owner, zone| {
        let matches = [Match::Protocol(Proto::Udp), port, owner];
        Rule::new(Table::Raw, istio::OUTPUT_DNS, matches, Target::CtZone(zone))
    };
    let responses = Match::SourcePort(Port(contract::port::DNS));
    proxy_owners(redirect)
        .flat_map(|o| [zone(Match::port(DNS_PORT), o.is(), ZONE_UPSTREAM), zone(responses.clone(), o.is(), ZONE_AGENT)])
        .collect()
}

/// Returns the rules that assign zones to the application's queries and to the resolver's responses to the agent.
fn zones(resolver: Resolver) -> [Rule; 2] {
    let question = [Match::Protocol(Proto::Udp), Match::port(DNS_PORT)];
    let response = [Match::Protocol(Proto::Udp), Match::SourcePort(DNS_PORT)];
    [
        resolver.rule(Table::Raw, istio::OUTPUT_DNS, question, Match::to, Target::CtZone(ZONE_AGENT)),
        resolver.rule(Table::Raw, istio::INBOUND, response, Match::Source, Target::CtZone(ZONE_UPSTREAM)),
    ]
}

fn resolvers(dns: &DnsCapture) -> Vec<Resolver> {
    match dns {
        DnsCapture::Off => Vec::new(),
        DnsCapture::All => vec![Resolver(None)],
        DnsCapture::Servers { v4, v6 } => {
            let v4 = v4.iter().copied().map(IpAddr::from);
            v4.chain(v6.iter().copied().map(IpAddr::from)).map(|a| Resolver(Some(IpNet::from(a)))).collect()
        }
    }
}

/// Returns the families that have a resolver; none if there is no resolver.
fn families(resolvers: &[Resolver]) -> Option<Families> {
    let all = resolvers.iter().map(|r| r.families());
    all.reduce(|a, b| if a == b { a } else { Families::Both })
}
