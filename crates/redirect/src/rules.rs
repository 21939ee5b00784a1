//! Builds the rules of a pod from its [`Redirect`] and the families of its netns.
//!
//! Pure. [`Redirect::desired`] and the dry run of `istio-iptables` call [`build`]; `netfilter` encodes the result. [`ambient`]
//! builds the rules of a pod without a sidecar. Rules and order are exactly Istio's.

pub mod ambient;
mod dns;
mod frame;
mod inbound;
mod outbound;
mod parts;
mod tproxy;

use crate::istio;
use ruleset::RuleSet;

use crate::{DnsCapture, InterceptionMode, Redirect};

/// A setting without effect on the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// Only DNS to the servers in `/etc/resolv.conf` was to be captured, and the file names none.
    #[error(
        "DNS is not captured: /etc/resolv.conf names no server; with --capture-all-dns, DNS to any server is captured"
    )]
    NoResolver,
}

/// Returns a warning if a setting has no effect on the rules.
pub fn warning(redirect: &Redirect) -> Option<Warning> {
    let no_resolver = matches!(&redirect.dns, DnsCapture::Servers { v4, v6 } if v4.is_empty() && v6.is_empty());
    no_resolver.then_some(Warning::NoResolver)
}

/// Builds the rules; `ipv6` is whether they cover IPv6, too.
pub fn build(redirect: &Redirect, ipv6: bool) -> RuleSet {
    let dns = redirect.dns != DnsCapture::Off && warning(redirect).is_none();
    let tproxy = redirect.mode == InterceptionMode::Tproxy;

    let mut rules = frame::rules(redirect);
    if tproxy {
        rules.extend(tproxy::chains(redirect));
    }
    rules.extend(inbound::rules(redirect));
    rules.extend(outbound::before_dns(redirect, dns));
    rules.extend(dns::rules(redirect));
    rules.extend(outbound::after_dns(redirect));
    if tproxy {
        rules.extend(tproxy::marks(redirect));
    }
    RuleSet { ipv6, layout: &istio::SIDECAR, rules }
}

#[cfg(test)]
mod text;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use ipnet::IpNet;
    use ruleset::{Families, Match, Port, Rule, Table, Target};

    use super::parts::DNS_PORT;
    use super::*;
    use crate::{CidrSelector, OwnerGroups, PortSelector, parse_cidrs};

    fn base() -> Redirect {
        Redirect { outbound_cidrs: CidrSelector::All, ..Redirect::default() }
    }

    fn including(cidrs: &str) -> Redirect {
        Redirect { outbound_cidrs: CidrSelector::List(parse_cidrs("test", cidrs).unwrap()), ..base() }
    }

    fn resolvers(v4: &[Ipv4Addr], v6: &[Ipv6Addr]) -> Redirect {
        Redirect { dns: DnsCapture::Servers { v4: v4.to_vec(), v6: v6.to_vec() }, ..base() }
    }

    fn rules(redirect: &Redirect) -> Vec<Rule> {
        build(redirect, true).rules
    }

    fn count(redirect: &Redirect, what: impl Fn(&Rule) -> bool) -> usize {
        rules(redirect).iter().filter(|r| what(r)).count()
    }

    fn spares_own_loopback(rule: &Rule) -> bool {
        matches!(
            rule.matches[..],
            [Match::OutInterface(_), Match::Uid { negated: true, .. } | Match::Gid { negated: true, .. }]
        )
    }

    #[test]
    fn the_applications_own_loopback_is_spared_unless_a_loopback_range_is_included() {
        for spared in [base(), including("10.0.0.0/8,::/0"), including("126.0.0.0/7")] {
            assert_eq!(count(&spared, spares_own_loopback), 2);
        }
        for taken in ["127.0.0.0/8", "10.0.0.0/8,127.1.2.3/32", "::1/128", "::ffff:127.0.0.1/128"] {
            assert_eq!(count(&including(taken), spares_own_loopback), 0, "{taken}");
        }
    }

    #[test]
    fn capture_without_a_resolver_is_off_with_a_warning() {
        let none = resolvers(&[], &[]);
        assert_eq!((warning(&none), warning(&base())), (Some(Warning::NoResolver), None));
        assert_eq!(build(&none, true), build(&base(), true));
    }

    #[test]
    fn dns_jumps_exist_in_the_families_that_have_a_resolver() {
        let (four, six) = (Ipv4Addr::new(10, 0, 0, 10), Ipv6Addr::LOCALHOST);
        let jumps = |redirect: &Redirect| {
            let jump =
                |r: &&Rule| r.matches.is_empty() && (r.table, r.jumps_to()) == (Table::Nat, Some(istio::OUTPUT_DNS));
            rules(redirect).iter().filter(jump).map(|r| r.families).collect::<Vec<_>>()
        };
        assert_eq!(jumps(&resolvers(&[four], &[])), [Families::V4]);
        assert_eq!(jumps(&resolvers(&[], &[six, six])), [Families::V6]);
        assert_eq!(jumps(&resolvers(&[four], &[six])), [Families::Both]);
        assert_eq!(jumps(&Redirect { dns: DnsCapture::All, ..base() }), [Families::Both]);
    }

    #[test]
    fn only_the_users_of_the_proxy_leave_dns_to_the_dns_rules() {
        let redirect = Redirect { dns: DnsCapture::All, ..base() };
        let with_dns = |r: &Rule| r.matches.contains(&Match::NotDestinationPorts(vec![DNS_PORT, Port(15008)]));
        let of_group = |r: &Rule| r.matches.iter().any(|m| matches!(m, Match::Gid { .. }));
        assert_eq!(count(&redirect, |r| with_dns(r) && !of_group(r)), 2);
        assert_eq!(count(&redirect, |r| with_dns(r) && of_group(r)), 0);
    }

    #[test]
    fn no_included_group_spares_everyone() {
        let redirect = Redirect { owner_groups: OwnerGroups::Only(Vec::new()), ..base() };
        assert_eq!(count(&redirect, |r| *r == Rule::new(Table::Nat, istio::OUTPUT, [], Target::Return)), 1);
        assert_eq!(count(&base(), |r| r.matches.is_empty() && r.target == Target::Return), 0);
    }

    #[test]
    fn excluded_inbound_ports_apply_only_if_all_are_included() {
        let excluding = |inbound_ports| {
            let redirect = Redirect { inbound_ports, inbound_ports_exclude: vec![Port(9)], ..base() };
            count(&redirect, |r| r.matches.contains(&Match::port(Port(9))))
        };
        assert_eq!(excluding(PortSelector::All), 1);
        assert_eq!(excluding(PortSelector::List(vec![Port(80)])), 0);
        assert_eq!(excluding(PortSelector::None), 0);
    }

    #[test]
    fn a_rule_that_names_an_address_is_of_that_family_alone() {
        let redirect = Redirect { mode: InterceptionMode::Tproxy, ..including("10.0.0.0/8,2001:db8::/32") };
        for rule in rules(&redirect) {
            let of = |net: &IpNet| if matches!(net, IpNet::V4(_)) { Families::V4 } else { Families::V6 };
            let named = rule.matches.iter().find_map(|m| match m {
                Match::Source(net) | Match::Destination { net, .. } => Some(of(net)),
                _ => None,
            });
            assert_eq!(rule.families, named.unwrap_or(Families::Both), "{rule:?}");
        }
    }
}
