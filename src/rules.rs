//! From a [`Redirect`](crate::redirect::Redirect) and what the netns looks like to the rules that a kernel is to hold.
//!
//! Pure. `converge` and the dry run of `istio-iptables` call [`build`]; `netfilter` encodes the result. The order of
//! rules is the product: Istio's, rule for rule.

mod chains;
mod dns;
mod frame;
mod inbound;
mod outbound;
mod ruleset;
mod tproxy;

pub use chains::Chains;
pub use ruleset::{At, Chain, CtStates, Families, Family, Match, Proto, Rule, RuleSet, Table, Target};

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::redirect::{DnsCapture, InterceptionMode, Owner, Port, Redirect};

const DNS_PORT: Port = Port(53);

/// The rules, and what was asked for but is not among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// The rules.
    pub rules: RuleSet,
    /// For the log.
    pub warnings: Vec<Warning>,
}

/// Something asked for that no rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// DNS capture by resolver, and not one resolver.
    #[error("DNS is not captured: /etc/resolv.conf names no resolver (capture all DNS to be independent of it)")]
    NoResolver,
}

/// The rules for what a pod asks for; `ipv6` says whether the pod has IPv6. Whatever is in a [`Redirect`] has rules.
pub fn build(redirect: &Redirect, ipv6: bool) -> Built {
    let nobody = matches!(&redirect.dns, DnsCapture::Servers { v4, v6 } if v4.is_empty() && v6.is_empty());
    let dns = redirect.dns != DnsCapture::Off && !nobody;
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
    let warnings = if nobody { vec![Warning::NoResolver] } else { Vec::new() };
    Built { rules: RuleSet { ipv6, rules }, warnings }
}

/// A user or a group that the proxy runs as.
enum ProxyOwner<'a> {
    User(&'a Owner),
    Group(&'a Owner),
}

impl ProxyOwner<'_> {
    fn is(&self) -> Match {
        self.matching(false)
    }

    fn is_not(&self) -> Match {
        self.matching(true)
    }

    fn matching(&self, negated: bool) -> Match {
        match *self {
            Self::User(owner) => Match::Uid { owner: owner.clone(), negated },
            Self::Group(owner) => Match::Gid { owner: owner.clone(), negated },
        }
    }
}

/// Users, then groups.
fn proxy_owners(redirect: &Redirect) -> impl Iterator<Item = ProxyOwner<'_>> {
    let users = redirect.proxy_uids.iter().map(ProxyOwner::User);
    users.chain(redirect.proxy_gids.iter().map(ProxyOwner::Group))
}

/// A rule with an address, for each family.
fn twins(rule: impl Fn(Family) -> Rule) -> [Rule; 2] {
    [rule(Family::V4).only(Families::V4), rule(Family::V6).only(Families::V6)]
}

/// What counts as loopback destination.
fn loopback(redirect: &Redirect, family: Family) -> IpNet {
    match family {
        Family::V4 => redirect.loopback_v4.into(),
        Family::V6 => Ipv6Net::from(Ipv6Addr::LOCALHOST).into(),
    }
}

/// The proxy's source address towards the application.
fn passthrough(family: Family) -> IpNet {
    match family {
        Family::V4 => Ipv4Net::from(Ipv4Addr::new(127, 0, 0, 6)).into(),
        Family::V6 => Ipv6Net::from(Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6)).into(),
    }
}
