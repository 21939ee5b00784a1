//! What redirection needs beside rules: `::6` on `lo`, and TPROXY's routing rule and table.
//!
//! [`Routes::of`] decides; [`Routes::apply`] and [`remove`] act on the calling thread's netns. A second `apply` changes
//! nothing, and `remove` does not mind what is not there.

use std::net::Ipv6Addr;

use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;

use super::Error;
use super::rtnl::Rtnl;
use crate::netlink::{self, flag};
use crate::redirect::{InterceptionMode, PortSelector, Redirect};

/// Source address of inbound connections that the proxy makes in an IPv6 pod; unlike 127.0.0.6 it needs an interface.
const PASSTHROUGH_V6: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6);
/// `lo` is the first interface of every netns (`LOOPBACK_IFINDEX` of Linux).
const LO: u32 = 1;
/// The priority that the kernel gives to a netns' first rule where none is asked for, as in Istio's `ip rule add`.
const PRIORITY: u32 = 32765;

/// TPROXY: packets with this mark are delivered locally, by way of this table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkRoute {
    /// Packet mark.
    pub mark: u32,
    /// Routing table.
    pub table: u32,
}

/// Addresses, rules and routes that a pod's redirection needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routes {
    /// The pod has IPv6.
    pub ipv6: bool,
    /// TPROXY's local delivery.
    pub tproxy: Option<MarkRoute>,
}

impl Routes {
    /// What `redirect` needs in a netns with or without IPv6.
    pub fn of(redirect: &Redirect, ipv6: bool) -> Self {
        let tproxy = redirect.mode == InterceptionMode::Tproxy && redirect.inbound_ports != PortSelector::None;
        let route = MarkRoute { mark: redirect.tproxy_mark, table: redirect.tproxy_table };
        Self { ipv6, tproxy: tproxy.then_some(route) }
    }

    /// Adds what is missing, and says whether anything was.
    pub fn apply(&self) -> Result<bool, Error> {
        if !self.ipv6 && self.tproxy.is_none() {
            return Ok(false);
        }
        let mut rtnl = Rtnl::open()?;
        let mut changed =
            self.ipv6 && add(&mut rtnl, "adding ::6/128 to lo", passthrough(RouteNetlinkMessage::NewAddress))?;
        let Some(route) = self.tproxy else { return Ok(changed) };
        let families = [Some(AddressFamily::Inet), self.ipv6.then_some(AddressFamily::Inet6)];
        for family in families.into_iter().flatten() {
            if rules_of(&mut rtnl, family, route)?.is_empty() {
                changed |= add(
                    &mut rtnl,
                    "adding the rule for TPROXY's mark",
                    RouteNetlinkMessage::NewRule(route.rule(family)),
                )?;
            }
            let local = RouteNetlinkMessage::NewRoute(route.local_default(family));
            changed |= add(&mut rtnl, "adding TPROXY's local default route (is lo up?)", local)?;
        }
        Ok(changed)
    }
}

impl MarkRoute {
    /// `ip rule add fwmark <mark> lookup <table>`
    fn rule(self, family: AddressFamily) -> RuleMessage {
        let mut rule = RuleMessage::default();
        rule.header.family = family;
        rule.header.action = RuleAction::ToTable;
        rule.header.table = short_table(self.table);
        rule.attributes =
            vec![RuleAttribute::Priority(PRIORITY), RuleAttribute::FwMark(self.mark), RuleAttribute::Table(self.table)];
        rule
    }

    /// Whoever wrote the rule, at whatever priority.
    fn is_rule(self, rule: &RuleMessage) -> bool {
        let has = |attribute| rule.attributes.contains(&attribute);
        let table = has(RuleAttribute::Table(self.table)) || u32::from(rule.header.table) == self.table;
        rule.header.action == RuleAction::ToTable && table && has(RuleAttribute::FwMark(self.mark))
    }

    /// `ip route add local default dev lo table <table>`
    fn local_default(self, family: AddressFamily) -> RouteMessage {
        let mut route = RouteMessage::default();
        route.header.address_family = family;
        route.header.table = short_table(self.table);
        route.header.protocol = RouteProtocol::Boot;
        route.header.scope = RouteScope::Host;
        route.header.kind = RouteType::Local;
        route.attributes = vec![RouteAttribute::Table(self.table), RouteAttribute::Oif(LO)];
        route
    }
}

/// Removes all that [`Routes::apply`] may have added for this mark and table, in both families.
pub fn remove(route: MarkRoute) -> Result<bool, Error> {
    let mut rtnl = Rtnl::open()?;
    let mut changed = delete(&mut rtnl, "removing ::6/128 from lo", passthrough(RouteNetlinkMessage::DelAddress))?;
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        for rule in rules_of(&mut rtnl, family, route)? {
            changed |= delete(&mut rtnl, "removing the rule for TPROXY's mark", RouteNetlinkMessage::DelRule(rule))?;
        }
        let local = RouteNetlinkMessage::DelRoute(route.local_default(family));
        changed |= delete(&mut rtnl, "removing TPROXY's local default route", local)?;
    }
    Ok(changed)
}

fn rules_of(rtnl: &mut Rtnl, family: AddressFamily, route: MarkRoute) -> Result<Vec<RuleMessage>, Error> {
    let mut request = RuleMessage::default();
    request.header.family = family;
    let answer = rtnl.dump("listing routing rules", RouteNetlinkMessage::GetRule(request));
    let answer = match answer {
        Err(error) if errno(&error).is_some_and(has_no_family) => Vec::new(),
        answer => answer?,
    };
    let rules = answer.into_iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewRule(rule) => Some(rule),
        _ => None,
    });
    Ok(rules.filter(|rule| rule.header.family == family && route.is_rule(rule)).collect())
}

fn passthrough(verb: fn(AddressMessage) -> RouteNetlinkMessage) -> RouteNetlinkMessage {
    let mut address = AddressMessage::default();
    address.header.family = AddressFamily::Inet6;
    address.header.prefix_len = 128;
    // Without it the address is tentative, hence unusable, until a worker of the kernel has looked at it.
    address.header.flags = AddressHeaderFlags::Nodad;
    address.header.index = LO;
    address.attributes =
        vec![AddressAttribute::Local(PASSTHROUGH_V6.into()), AddressAttribute::Address(PASSTHROUGH_V6.into())];
    verb(address)
}

/// False where it was there already.
fn add(rtnl: &mut Rtnl, request: &'static str, message: RouteNetlinkMessage) -> Result<bool, Error> {
    let Err(error) = rtnl.change(request, message, flag::CREATE | flag::EXCL) else { return Ok(true) };
    match errno(&error) {
        Some(Errno::EEXIST) => Ok(false),
        Some(errno) if has_no_family(errno) => Err(Error::Ipv6Disabled(error)),
        _ => Err(error.into()),
    }
}

/// False where it was not there. Linux says so with one error for each kind: address, rule, route.
fn delete(rtnl: &mut Rtnl, request: &'static str, message: RouteNetlinkMessage) -> Result<bool, Error> {
    let Err(error) = rtnl.change(request, message, 0) else { return Ok(true) };
    match errno(&error) {
        Some(Errno::EADDRNOTAVAIL | Errno::ENOENT | Errno::ESRCH) => Ok(false),
        Some(errno) if has_no_family(errno) => Ok(false),
        _ => Err(error.into()),
    }
}

/// What the kernel refused with.
fn errno(error: &netlink::Error) -> Option<Errno> {
    match error {
        netlink::Error::Refused { refusal, .. } => Some(refusal.errno),
        _ => None,
    }
}

/// A kernel without IPv6, one that was started with `ipv6.disable=1`, or a netns with `disable_ipv6` set.
fn has_no_family(errno: Errno) -> bool {
    matches!(errno, Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT | Errno::EACCES | Errno::ENXIO)
}

/// The header has eight bits for the table; a larger number is in the attribute alone.
fn short_table(table: u32) -> u8 {
    u8::try_from(table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redirect::Port;

    const ROUTE: MarkRoute = MarkRoute { mark: 1337, table: 133 };

    #[test]
    fn redirect_mode_needs_no_routing() {
        let redirect = Redirect { inbound_ports: PortSelector::All, ..Redirect::default() };
        assert_eq!(Routes::of(&redirect, true), Routes { ipv6: true, tproxy: None });
    }

    #[test]
    fn tproxy_needs_routing_where_it_has_inbound_ports() {
        let mut redirect = Redirect { mode: InterceptionMode::Tproxy, ..Redirect::default() };
        assert_eq!(Routes::of(&redirect, false), Routes { ipv6: false, tproxy: None });
        for ports in [PortSelector::All, PortSelector::List(vec![Port(80)])] {
            redirect.inbound_ports = ports;
            assert_eq!(Routes::of(&redirect, false), Routes { ipv6: false, tproxy: Some(ROUTE) });
        }
    }

    #[test]
    fn a_rule_of_another_mark_or_table_is_not_ours() {
        let other = MarkRoute { mark: 1338, ..ROUTE };
        let elsewhere = MarkRoute { table: 134, ..ROUTE };
        let wide = MarkRoute { table: 1000, ..ROUTE };
        for route in [ROUTE, other, elsewhere, wide] {
            let rule = route.rule(AddressFamily::Inet);
            assert_eq!(ROUTE.is_rule(&rule), route == ROUTE, "{route:?}");
            assert!(route.is_rule(&rule), "{route:?}");
        }
    }
}
