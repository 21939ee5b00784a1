//! Matches, addresses and ports that several groups of rules share.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use ruleset::{Families, Family, Match, Owner, Port, Rule};

use crate::Redirect;

pub(super) const DNS_PORT: Port = Port(53);

/// A user or group of the proxy.
pub(super) enum ProxyOwner<'a> {
    User(&'a Owner),
    Group(&'a Owner),
}

impl ProxyOwner<'_> {
    pub(super) fn is(&self) -> Match {
        self.matching(false)
    }

    pub(super) fn is_not(&self) -> Match {
        self.matching(true)
    }

    fn matching(&self, negated: bool) -> Match {
        match *self {
            Self::User(owner) => Match::Uid { owner: owner.clone(), negated },
            Self::Group(owner) => Match::Gid { owner: owner.clone(), negated },
        }
    }
}

/// Returns the proxy's users, then its groups.
pub(super) fn proxy_owners(redirect: &Redirect) -> impl Iterator<Item = ProxyOwner<'_>> {
    let users = redirect.proxy_uids.iter().map(ProxyOwner::User);
    users.chain(redirect.proxy_gids.iter().map(ProxyOwner::Group))
}

/// Builds a rule that contains an address once for each family.
pub(super) fn per_family(rule: impl Fn(Family) -> Rule) -> [Rule; 2] {
    [rule(Family::V4).only(Families::V4), rule(Family::V6).only(Families::V6)]
}

/// Returns the loopback destinations of a family.
pub(super) fn loopback(redirect: &Redirect, family: Family) -> IpNet {
    match family {
        Family::V4 => redirect.loopback_v4.into(),
        Family::V6 => Ipv6Net::from(Ipv6Addr::LOCALHOST).into(),
    }
}

/// Returns the proxy's source address for connections to the application.
pub(super) fn passthrough(family: Family) -> IpNet {
    match family {
        Family::V4 => Ipv4Net::from(Ipv4Addr::new(127, 0, 0, 6)).into(),
        Family::V6 => Ipv6Net::from(Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6)).into(),
    }
}
