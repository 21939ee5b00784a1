//! The address and routes that redirection needs besides rules: `::6` on `lo`, and a routing rule with its table for
//! marked packets.
//!
//! [`missing`] and [`present`] read, [`apply`] and [`remove`] change the calling thread's netns. Functions with a parameter
//! `ipv6` include IPv6 entries only if it is true. A second `apply` changes nothing, and `remove` ignores absent entries.

use std::fmt;
use std::net::Ipv6Addr;

use netlink::{self, Attrs, Malformed, Writer};
use nix::errno::Errno;
use ruleset::{Family, MarkRoute, Routes};

use super::Error;
use super::addresses::{IFA_ADDRESS, IFA_LOCAL, own_address};
use super::rtnl::{Object, Rtnl, find, number};

/// Source address of the proxy's IPv6 connections to the application; unlike 127.0.0.6 it must be assigned to an
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
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_FLOW: u16 = 11;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_PAD: u16 = 18;
const FRA_PROTOCOL: u16 = 21;
const FR_ACT_TO_TBL: u8 = 1;
const FIB_RULE_INVERT: u32 = 2;

/// The maximum number of routing rules that are deleted for one entry, in case another program adds them again.
const MAX_DELETIONS: usize = 1000;

/// An address, routing rule or route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// `ip address add ::6/128 dev lo`
    Passthrough,
    /// `ip rule add fwmark <mark>/<mask> lookup <table>`
    Rule(Family, MarkRoute),
    /// `ip route add local default dev lo table <table>`
    Route(Family, MarkRoute),
}

/// Adds the missing entries, and returns them.
pub fn apply(routes: Routes, ipv6: bool) -> Result<Vec<Entry>, Error> {
    filter(entries(routes, ipv6), Entry::add)
}

/// Removes the entries of `former`, in both families, that `wanted` lacks, except the address; returns the entries that
/// existed. `ipv6` is whether IPv6 entries are wanted.
pub fn remove_beyond(former: Routes, wanted: Routes, ipv6: bool) -> Result<Vec<Entry>, Error> {
    let wanted = entries(wanted, ipv6);
    let is_unwanted = |entry: &Entry| *entry != Entry::Passthrough && !wanted.contains(entry);
    filter(entries(former, true).into_iter().filter(is_unwanted).collect(), Entry::remove)
}

/// Returns the entries that do not exist or have no effect: those that [`apply`] would add or fail for.
pub fn missing(routes: Routes, ipv6: bool) -> Result<Vec<Entry>, Error> {
    filter(entries(routes, ipv6), |entry, rtnl| Ok(!entry.is_effective(rtnl)?))
}

/// Returns the entries that the netns has and that have an effect.
pub fn present(routes: Routes, ipv6: bool) -> Result<Vec<Entry>, Error> {
    filter(entries(routes, ipv6), Entry::is_effective)
}

fn entries(routes: Routes, ipv6: bool) -> Vec<Entry> {
    let families = [Some(Family::V4), ipv6.then_some(Family::V6)].into_iter().flatten();
    let marked = routes.marked.map(|route| families.flat_map(move |family| of_mark(route, family)));
    let passthrough = (ipv6 && routes.passthrough).then_some(Entry::Passthrough);
    passthrough.into_iter().chain(marked.into_iter().flatten()).collect()
}

fn of_mark(route: MarkRoute, family: Family) -> [Entry; 2] {
    [Entry::Rule(family, route), Entry::Route(family, route)]
}

fn filter(entries: Vec<Entry>, keep: impl Fn(Entry, &mut Rtnl) -> Result<bool, Error>) -> Result<Vec<Entry>, Error> {
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

/// Removes the entries of both families from the netns. Returns whether anything existed.
pub fn remove(routes: Routes) -> Result<bool, Error> {
    let mut rtnl = Rtnl::open()?;
    let mut changed = false;
    for entry in entries(routes, true) {
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
            Self::Rule(family, MarkRoute { mark, mask, table, priority }) => {
                write!(f, "{} routing rule `fwmark {mark:#x}", family_name(*family))?;
                if *mask != u32::MAX {
                    write!(f, "/{mask:#x}")?;
                }
                write!(f, " lookup {table}")?;
                priority.map_or(Ok(()), |priority| write!(f, " priority {priority}"))?;
                f.write_str("`")
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

    /// Adds the entry; returns false if the netns already has it. Fails with [`Error::Shadowed`] if a route would have no
    /// effect.
    fn add(self, rtnl: &mut Rtnl) -> Result<bool, Error> {
        // The kernel reports that an address or a route exists. A rule is searched for, because the kernel would add a
        // second one with another priority.
        if matches!(self, Self::Rule(..)) && !self.found(rtnl)?.is_empty() {
            return Ok(false);
        }
        let request = match self {
            Self::Passthrough => "adding ::6/128 to lo",
            Self::Rule(..) => "adding the routing rule for marked packets",
            Self::Route(..) => "adding the local default route of marked packets (is lo up?)",
        };
        let added = match rtnl.add(request, self.object(), &self.body(request)?) {
            Ok(()) => true,
            Err(error) => match errno(&error) {
                Some(Errno::EEXIST) => false,
                Some(errno) if has_no_family(errno) => return Err(Error::Ipv6Disabled(error)),
                _ => return Err(error.into()),
            },
        };
        // EEXIST only means that some route has the same destination, TOS and metric. A new IPv4 route has the lowest
        // metric, 0; an IPv6 route has 1024 by default, so that another one may precede it.
        let may_be_shadowed = matches!(self, Self::Route(family, _) if !added || family == Family::V6);
        if may_be_shadowed && !self.is_effective(rtnl)? {
            return Err(Error::Shadowed { entry: self });
        }
        Ok(added)
    }

    /// Removes the entry; returns false if the netns does not have it. Removes all equivalent rules, whichever program
    /// added them. Of rules with the same priority, the kernel deletes the first that has the message's selectors and any
    /// others; therefore it may delete a narrower rule of another program, too.
    fn remove(self, rtnl: &mut Rtnl) -> Result<bool, Error> {
        let request = match self {
            Self::Passthrough => "removing ::6/128 from lo",
            Self::Rule(..) => "removing the routing rule for marked packets",
            Self::Route(..) => "removing the local default route of marked packets",
        };
        if !matches!(self, Self::Rule(..)) {
            return self.delete(rtnl, request, &self.body(request)?);
        }
        let mut changed = false;
        for _ in 0..MAX_DELETIONS {
            let Some(body) = self.found(rtnl)?.pop() else { return Ok(changed) };
            changed |= self.delete(rtnl, request, &body)?;
        }
        Ok(changed)
    }

    /// Sends one deletion; returns false if the kernel has no such object.
    fn delete(self, rtnl: &mut Rtnl, request: &'static str, body: &[u8]) -> Result<bool, Error> {
        let Err(error) = rtnl.delete(request, self.object(), body) else { return Ok(true) };
        match errno(&error) {
            // Linux reports absence with a different error for each kind: address, rule, route.
            Some(Errno::EADDRNOTAVAIL | Errno::ENOENT | Errno::ESRCH) => Ok(false),
            Some(errno) if has_no_family(errno) => Ok(false),
            _ => Err(error.into()),
        }
    }

    /// Whether the netns has the entry; a route must also be the table's first default route, which the kernel uses.
    fn is_effective(self, rtnl: &mut Rtnl) -> Result<bool, Error> {
        let Self::Route(family, MarkRoute { table, .. }) = self else { return Ok(!self.found(rtnl)?.is_empty()) };
        // The kernel lists the default routes of a table by metric.
        let defaults = self.dump(rtnl, |body| match is_default(body, family, table)? {
            true => self.is(body).map(Some),
            false => Ok(None),
        })?;
        Ok(defaults.first() == Some(&true))
    }

    /// Returns the equivalent entries in the netns, each as the body of the kernel's message.
    fn found(self, rtnl: &mut Rtnl) -> Result<Vec<Vec<u8>>, Error> {
        self.dump(rtnl, |body| Ok(self.is(body)?.then(|| body.to_vec())))
    }

    /// Returns the values that `read` returns for the netns's objects of the entry's kind and family.
    fn dump<T>(self, rtnl: &mut Rtnl, read: impl Fn(&[u8]) -> Result<Option<T>, Malformed>) -> Result<Vec<T>, Error> {
        let request = match self {
            Self::Passthrough => "listing addresses",
            Self::Rule(..) => "listing routing rules",
            Self::Route(..) => "listing routes",
        };
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
            Self::Rule(_, MarkRoute { mark, mask, table, priority }) => {
                w.raw(&[family, 0, 0, 0, short(table), 0, 0, FR_ACT_TO_TBL, 0, 0, 0, 0]);
                w.attr(FRA_FWMARK, &mark.to_ne_bytes());
                if mask != u32::MAX {
                    w.attr(FRA_FWMASK, &mask.to_ne_bytes());
                }
                w.attr(FRA_TABLE, &table.to_ne_bytes());
                if let Some(priority) = priority {
                    w.attr(FRA_PRIORITY, &priority.to_ne_bytes());
                }
            }
            Self::Route(_, MarkRoute { table, .. }) => {
                w.raw(&[family, 0, 0, 0, short(table), RTPROT_BOOT, RT_SCOPE_HOST, RTN_LOCAL, 0, 0, 0, 0]);
                w.attr(RTA_TABLE, &table.to_ne_bytes());
                w.attr(RTA_OIF, &LO.to_ne_bytes());
            }
        }
        w.into_bytes().map_err(|cause| netlink::Error::Malformed { request, cause }.into())
    }

    /// Whether a netlink message from the kernel describes this entry or an equivalent one, whichever program added it.
    fn is(self, body: &[u8]) -> Result<bool, Malformed> {
        // If the kernel lacks the requested family, its dump contains all families: entries of other families are
        // ignored.
        if body.first() != Some(&number(Some(self.family()))) {
            return Ok(false);
        }
        match self {
            Self::Passthrough => Ok(own_address(body)? == Some((LO, PASSTHROUGH_V6.into()))),
            Self::Rule(_, route) => is_rule(body, route),
            Self::Route(family, MarkRoute { table, .. }) => {
                // A local route delivers packets to the netns itself, whatever its device.
                Ok(is_default(body, family, table)? && header(body)?.0[7] == RTN_LOCAL)
            }
        }
    }
}

/// Splits the message of a route or a rule into its header and its attributes.
fn header(body: &[u8]) -> Result<(&[u8; 12], &[u8]), Malformed> {
    body.split_first_chunk().ok_or(Malformed("a route's or a rule's header is cut off"))
}

/// Whether a message describes a default route of a table, for any type of service.
fn is_default(body: &[u8], family: Family, table: u32) -> Result<bool, Malformed> {
    let (&[found, dst, src, tos, ..], attrs) = header(body)?;
    Ok([found, dst, src, tos] == [number(Some(family)), 0, 0, 0]
        && find(attrs, RTA_TABLE)? == Some(&table.to_ne_bytes()))
}

/// Whether a message describes a rule that sends all packets with the route's mark, and only these, to its table.
fn is_rule(body: &[u8], MarkRoute { mark, mask, table, priority }: MarkRoute) -> Result<bool, Malformed> {
    let (&[_, dst, src, tos, _table, _, _, action, f0, f1, f2, f3], attrs) = header(body)?;
    let inverted = u32::from_ne_bytes([f0, f1, f2, f3]) & FIB_RULE_INVERT != 0;
    let same_mask = find(attrs, FRA_FWMASK)?.unwrap_or(&u32::MAX.to_ne_bytes()) == mask.to_ne_bytes();
    // The kernel does not send a priority of 0.
    let found = find(attrs, FRA_PRIORITY)?.unwrap_or(&[0; 4]);
    let same_priority = priority.is_none_or(|priority| found == priority.to_ne_bytes());
    Ok([dst, src, tos, action] == [0, 0, 0, FR_ACT_TO_TBL]
        && !inverted
        && same_mask
        && same_priority
        && find(attrs, FRA_FWMARK)? == Some(&mark.to_ne_bytes())
        && find(attrs, FRA_TABLE)? == Some(&table.to_ne_bytes())
        && has_no_further_selector(attrs)?)
}

/// Whether a rule's attributes neither restrict which marked packets it applies to nor which routes it accepts. An unknown
/// attribute is treated as a restriction, because newer kernels have further selectors.
fn has_no_further_selector(attrs: &[u8]) -> Result<bool, Malformed> {
    for attr in Attrs::new(attrs) {
        let attr = attr?;
        let is_harmless = match attr.kind {
            FRA_PRIORITY | FRA_FWMARK | FRA_FWMASK | FRA_TABLE | FRA_FLOW | FRA_PROTOCOL | FRA_PAD => true,
            // -1 means that no route is suppressed.
            FRA_SUPPRESS_PREFIXLEN | FRA_SUPPRESS_IFGROUP => attr.value == (-1_i32).to_ne_bytes(),
            _ => false,
        };
        if !is_harmless {
            return Ok(false);
        }
    }
    Ok(true)
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

/// Returns the table's number for the header's eight bits; a larger number is only in the attribute.
fn short(table: u32) -> u8 {
    u8::try_from(table).unwrap_or_default()
}

#[cfg(test)]
mod tests;
