//! The address and routes that redirection needs besides rules: `::6` on `lo`, and TPROXY's routing rule and table.
//!
//! [`Routes::of`] is pure; [`Routes::missing`] reads, [`Routes::apply`] and [`remove`] change the calling thread's
//! netns. A second `apply` changes nothing, and `remove` ignores absent entries.

use std::fmt;
use std::net::Ipv6Addr;

use nix::errno::Errno;

use super::Error;
use super::addresses::{IFA_ADDRESS, IFA_LOCAL, own_address};
use super::rtnl::{Object, Rtnl, find, number};
use crate::netlink::{self, Malformed, Writer};
use crate::redirect::{InterceptionMode, PortSelector, Redirect};
use crate::rules::Family;

/// Source address of the proxy's inbound connections in an IPv6 pod; unlike 127.0.0.6 it must be assigned to an
/// interface.
const PASSTHROUGH_V6: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6);
/// The index of `lo` in every netns (`LOOPBACK_IFINDEX` of Linux).
const LO: u32 = 1;

/// Without this flag (`linux/if_addr.h`) a new address is tentative and unusable until a kernel worker has handled it.
const IFA_F_NODAD: u8 = 0x02;

/// Attributes of a route, and values of its header (`linux/rtnetlink.h`).
const RTA_OIF: u16 = 4;
const RTA_TABLE: u16 = 15;
const RTPROT_BOOT: u8 = 3;
const RT_SCOPE_HOST: u8 = 254;
const RTN_LOCAL: u8 = 2;

/// Attributes of a routing rule, and values of its header (`linux/fib_rules.h`).
const FRA_FWMARK: u16 = 10;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FR_ACT_TO_TBL: u8 = 1;
const FIB_RULE_INVERT: u32 = 2;

/// TPROXY's local delivery of packets with a mark, through a routing table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkRoute {
    pub mark: u32,
    pub table: u32,
}

/// The addresses, rules and routes that a pod's redirection needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routes {
    /// Whether the pod has IPv6.
    pub ipv6: bool,
    pub tproxy: Option<MarkRoute>,
}

/// An address, rule or route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// `ip address add ::6/128 dev lo`
    Passthrough,
    /// `ip rule add fwmark <mark> lookup <table>`
    Rule(Family, MarkRoute),
    /// `ip route add local default dev lo table <table>`
    Route(Family, MarkRoute),
}

impl Routes {
    /// The entries that `redirect` needs in a netns with or without IPv6.
    pub fn of(redirect: &Redirect, ipv6: bool) -> Self {
        let tproxy = redirect.mode == InterceptionMode::Tproxy && redirect.inbound_ports != PortSelector::None;
        let route = MarkRoute { mark: redirect.tproxy_mark, table: redirect.tproxy_table };
        Self { ipv6, tproxy: tproxy.then_some(route) }
    }

    /// Adds the missing entries, and returns them.
    pub fn apply(&self) -> Result<Vec<Entry>, Error> {
        self.filter(Entry::add)
    }

    /// Returns the entries that [`Routes::apply`] would add.
    pub fn missing(&self) -> Result<Vec<Entry>, Error> {
        self.filter(|entry, rtnl| Ok(entry.found(rtnl)?.is_empty()))
    }

    fn entries(&self) -> Vec<Entry> {
        let families = [Some(Family::V4), self.ipv6.then_some(Family::V6)].into_iter().flatten();
        let tproxy = self.tproxy.map(|route| families.flat_map(move |family| route.entries(family)));
        self.ipv6.then_some(Entry::Passthrough).into_iter().chain(tproxy.into_iter().flatten()).collect()
    }

    fn filter(&self, keep: impl Fn(Entry, &mut Rtnl) -> Result<bool, Error>) -> Result<Vec<Entry>, Error> {
        let entries = self.entries();
        if entries.is_empty() {
            return Ok(entries);
        }
        let mut rtnl = Rtnl::open()?;
        let mut kept = Vec::new();
        for entry in entries {
            if keep(entry, &mut rtnl)? {
                kept.push(entry);
            }
        }
        Ok(kept)
    }
}

impl MarkRoute {
    fn entries(self, family: Family) -> [Entry; 2] {
        [Entry::Rule(family, self), Entry::Route(family, self)]
    }
}

/// Removes everything that [`Routes::apply`] may have added for this mark and table in both families. Returns whether
/// anything existed.
pub fn remove(route: MarkRoute) -> Result<bool, Error> {
    let mut rtnl = Rtnl::open()?;
    let mut changed = false;
    for entry in (Routes { ipv6: true, tproxy: Some(route) }).entries() {
        changed |= entry.remove(&mut rtnl)?;
    }
    Ok(changed)
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family_name = |family| match family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        };
        match self {
            Self::Passthrough => f.write_str("address ::6/128 of lo"),
            Self::Rule(family, MarkRoute { mark, table }) => {
                write!(f, "{} routing rule `fwmark {mark:#x} lookup {table}`", family_name(*family))
            }
            Self::Route(family, MarkRoute { table, .. }) => {
                write!(f, "{} route `local default dev lo` of table {table}", family_name(*family))
            }
        }
    }
}

impl Entry {
    fn object(self) -> Object {
        match self {
            Self::Passthrough => Object::Address,
            Self::Rule(..) => Object::Rule,
            Self::Route(..) => Object::Route,
        }
    }

    fn family(self) -> Family {
        match self {
            Self::Passthrough => Family::V6,
            Self::Rule(family, _) | Self::Route(family, _) => family,
        }
    }

    /// Returns false if the entry existed.
    fn add(self, rtnl: &mut Rtnl) -> Result<bool, Error> {
        // The kernel reports an existing entry, except for a rule: at another priority it is a different one.
        if matches!(self, Self::Rule(..)) && !self.found(rtnl)?.is_empty() {
            return Ok(false);
        }
        let request = match self {
            Self::Passthrough => "adding ::6/128 to lo",
            Self::Rule(..) => "adding the rule for TPROXY's mark",
            Self::Route(..) => "adding TPROXY's local default route (is lo up?)",
        };
        let Err(error) = rtnl.add(request, self.object(), &self.body(request)?) else { return Ok(true) };
        match errno(&error) {
            Some(Errno::EEXIST) => Ok(false),
            Some(errno) if has_no_family(errno) => Err(Error::Ipv6Disabled(error)),
            _ => Err(error.into()),
        }
    }

    /// Returns false if the entry did not exist. Removes all equivalent rules, of any origin.
    fn remove(self, rtnl: &mut Rtnl) -> Result<bool, Error> {
        let request = match self {
            Self::Passthrough => "removing ::6/128 from lo",
            Self::Rule(..) => "removing the rule for TPROXY's mark",
            Self::Route(..) => "removing TPROXY's local default route",
        };
        let bodies = match self {
            Self::Rule(..) => self.found(rtnl)?,
            Self::Passthrough | Self::Route(..) => vec![self.body(request)?],
        };
        let mut changed = false;
        for body in bodies {
            let Err(error) = rtnl.delete(request, self.object(), &body) else {
                changed = true;
                continue;
            };
            match errno(&error) {
                // Linux reports absence with a different error for each kind: address, rule, route.
                Some(Errno::EADDRNOTAVAIL | Errno::ENOENT | Errno::ESRCH) => {}
                Some(errno) if has_no_family(errno) => {}
                _ => return Err(error.into()),
            }
        }
        Ok(changed)
    }

    /// Returns the bodies of the messages about equivalent entries in the netns.
    fn found(self, rtnl: &mut Rtnl) -> Result<Vec<Vec<u8>>, Error> {
        let request = match self {
            Self::Passthrough => "listing addresses",
            Self::Rule(..) => "listing routing rules",
            Self::Route(..) => "listing routes",
        };
        let read = |body: &[u8]| Ok(self.is(body)?.then(|| body.to_vec()));
        match rtnl.dump(request, self.object(), Some(self.family()), read) {
            Err(error) if errno(&error).is_some_and(has_no_family) => Ok(Vec::new()),
            found => Ok(found?),
        }
    }

    /// Encodes the body of the message that adds or deletes the entry: header and attributes.
    fn body(self, request: &'static str) -> Result<Vec<u8>, Error> {
        let mut w = Writer::default();
        let family = number(Some(self.family()));
        match self {
            Self::Passthrough => {
                w.raw(&[family, 128, IFA_F_NODAD, 0]);
                w.raw(&LO.to_ne_bytes());
                w.attr(IFA_LOCAL, &PASSTHROUGH_V6.octets());
                w.attr(IFA_ADDRESS, &PASSTHROUGH_V6.octets());
            }
            // Without a priority the kernel puts the rule before all others except the one for local addresses, as for
            // `ip rule add`.
            Self::Rule(_, MarkRoute { mark, table }) => {
                w.raw(&[family, 0, 0, 0, short(table), 0, 0, FR_ACT_TO_TBL, 0, 0, 0, 0]);
                w.attr(FRA_FWMARK, &mark.to_ne_bytes());
                w.attr(FRA_TABLE, &table.to_ne_bytes());
            }
            Self::Route(_, MarkRoute { table, .. }) => {
                w.raw(&[family, 0, 0, 0, short(table), RTPROT_BOOT, RT_SCOPE_HOST, RTN_LOCAL, 0, 0, 0, 0]);
                w.attr(RTA_TABLE, &table.to_ne_bytes());
                w.attr(RTA_OIF, &LO.to_ne_bytes());
            }
        }
        w.into_bytes().map_err(|cause| netlink::Error::Malformed { request, cause }.into())
    }

    /// Whether a message of the kernel describes the entry or an equivalent one: a rule of any origin and priority.
    fn is(self, body: &[u8]) -> Result<bool, Malformed> {
        const CUT: Malformed = Malformed("a route's or a rule's header is cut off");
        // A kernel without the family dumps all families.
        if body.first() != Some(&number(Some(self.family()))) {
            return Ok(false);
        }
        match self {
            Self::Passthrough => Ok(own_address(body)? == Some((LO, PASSTHROUGH_V6.into()))),
            Self::Rule(_, MarkRoute { mark, table }) => {
                let (&[_, dst, src, tos, _table, _, _, action, f0, f1, f2, f3], attrs) =
                    body.split_first_chunk().ok_or(CUT)?;
                let inverted = u32::from_ne_bytes([f0, f1, f2, f3]) & FIB_RULE_INVERT != 0;
                let mask = find(attrs, FRA_FWMASK)?.is_none_or(|mask| mask == u32::MAX.to_ne_bytes());
                Ok([dst, src, tos, action] == [0, 0, 0, FR_ACT_TO_TBL]
                    && !inverted
                    && mask
                    && find(attrs, FRA_FWMARK)? == Some(&mark.to_ne_bytes())
                    && find(attrs, FRA_TABLE)? == Some(&table.to_ne_bytes()))
            }
            Self::Route(_, MarkRoute { table, .. }) => {
                let (&[_, dst, src, tos, _table, _, _, kind, _, _, _, _], attrs) =
                    body.split_first_chunk().ok_or(CUT)?;
                Ok([dst, src, tos, kind] == [0, 0, 0, RTN_LOCAL]
                    && find(attrs, RTA_TABLE)? == Some(&table.to_ne_bytes())
                    && find(attrs, RTA_OIF)? == Some(&LO.to_ne_bytes()))
            }
        }
    }
}

/// Returns the errno of a refusal.
fn errno(error: &netlink::Error) -> Option<Errno> {
    match error {
        netlink::Error::Refused { refusal, .. } => Some(refusal.errno),
        _ => None,
    }
}

/// Whether the family is unavailable: a kernel without IPv6 or with `ipv6.disable=1`, or a netns with `disable_ipv6`.
fn has_no_family(errno: Errno) -> bool {
    matches!(errno, Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT | Errno::EACCES | Errno::ENXIO)
}

/// Returns the table for the header's eight bits; a larger number is only in the attribute.
fn short(table: u32) -> u8 {
    u8::try_from(table).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redirect::Port;

    const ROUTE: MarkRoute = MarkRoute { mark: 1337, table: 133 };

    #[test]
    fn redirect_mode_needs_no_tproxy_routes() {
        let redirect = Redirect { inbound_ports: PortSelector::All, ..Redirect::default() };
        assert_eq!(Routes::of(&redirect, true), Routes { ipv6: true, tproxy: None });
    }

    #[test]
    fn tproxy_needs_routes_if_it_has_inbound_ports() {
        let mut redirect = Redirect { mode: InterceptionMode::Tproxy, ..Redirect::default() };
        assert_eq!(Routes::of(&redirect, false), Routes { ipv6: false, tproxy: None });
        for ports in [PortSelector::All, PortSelector::List(vec![Port(80)])] {
            redirect.inbound_ports = ports;
            assert_eq!(Routes::of(&redirect, false), Routes { ipv6: false, tproxy: Some(ROUTE) });
        }
    }

    #[test]
    fn only_equivalent_rules_match() {
        let other = MarkRoute { mark: 1338, ..ROUTE };
        let elsewhere = MarkRoute { table: 134, ..ROUTE };
        let wide = MarkRoute { table: 1000, ..ROUTE };
        let ours = Entry::Rule(Family::V4, ROUTE);
        for route in [ROUTE, other, elsewhere, wide] {
            let body = Entry::Rule(Family::V4, route).body("").unwrap();
            assert_eq!(ours.is(&body), Ok(route == ROUTE), "{route:?}");
            assert_eq!(Entry::Rule(Family::V4, route).is(&body), Ok(true), "{route:?}");
            assert_eq!(Entry::Rule(Family::V6, route).is(&body), Ok(false), "{route:?}");
        }
        let body = ours.body("").unwrap();
        for (at, what) in [(1, "to a prefix"), (2, "from a prefix"), (3, "of a tos"), (7, "blackhole"), (8, "inverted")]
        {
            let mut narrower = body.clone();
            narrower[at] ^= 2;
            assert_eq!(ours.is(&narrower), Ok(false), "{what}");
        }
        let mut masked = Writer::default();
        masked.raw(&body);
        masked.attr(FRA_FWMASK, &0xffff_u32.to_ne_bytes());
        assert_eq!(ours.is(&masked.into_bytes().unwrap()), Ok(false), "of a part of the mark");
    }

    #[test]
    fn written_entries_are_read_back_and_truncated_ones_refused() {
        for entry in (Routes { ipv6: true, tproxy: Some(ROUTE) }).entries() {
            let body = entry.body("").unwrap();
            assert_eq!(entry.is(&body), Ok(true), "{entry}");
            assert!(entry.is(&body[..7]).is_err(), "{entry}");
        }
    }

    #[test]
    fn entries_are_printed_in_the_syntax_of_ip() {
        let printed =
            (Routes { ipv6: true, tproxy: Some(ROUTE) }).entries().iter().map(Entry::to_string).collect::<Vec<_>>();
        let expected = [
            "address ::6/128 of lo",
            "IPv4 routing rule `fwmark 0x539 lookup 133`",
            "IPv4 route `local default dev lo` of table 133",
            "IPv6 routing rule `fwmark 0x539 lookup 133`",
            "IPv6 route `local default dev lo` of table 133",
        ];
        assert_eq!(printed, expected);
    }
}
