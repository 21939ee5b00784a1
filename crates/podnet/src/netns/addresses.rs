//! The addresses of a netns, and the families that they imply.
//!
//! [`read`] needs one dump; [`families`] is pure. `converge` calls both for every pod, on the hot path.

use std::net::{IpAddr, Ipv6Addr};

use netlink::Malformed;

use super::Error;
use super::rtnl::{self, Object, Rtnl};

/// Attributes of an address (`linux/if_addr.h`).
pub(super) const IFA_ADDRESS: u16 = 1;
pub(super) const IFA_LOCAL: u16 = 2;

/// The families of a pod according to its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostAddresses {
    /// The first usable address.
    pub host_ip: IpAddr,
    /// Whether the rules must cover IPv6.
    pub ipv6: bool,
    /// The first usable IPv6 address, whether the rules cover it or not.
    pub ipv6_address: Option<Ipv6Addr>,
}

/// Reads all addresses of the calling thread's netns in the kernel's order: IPv4 first, by interface.
pub fn read() -> Result<Vec<IpAddr>, Error> {
    let addresses = Rtnl::open()?.dump("listing addresses", Object::Address, None, own_address)?;
    Ok(addresses.into_iter().map(|(_, ip)| ip).collect())
}

/// Parses an address and its interface's index. On a point-to-point interface `IFA_ADDRESS` is the peer's address and
/// `IFA_LOCAL` the interface's own; without a peer IPv6 has only `IFA_ADDRESS`.
pub(super) fn own_address(body: &[u8]) -> Result<Option<(u32, IpAddr)>, Malformed> {
    let header = body.split_first_chunk().ok_or(Malformed("an address's header is cut off"))?;
    let (&[_family, _prefix, _flags, _scope, i0, i1, i2, i3], attrs) = header;
    let own = match rtnl::find(attrs, IFA_LOCAL)? {
        Some(local) => Some(local),
        None => rtnl::find(attrs, IFA_ADDRESS)?,
    };
    own.map(|bytes| Ok((u32::from_ne_bytes([i0, i1, i2, i3]), parse(bytes)?))).transpose()
}

fn parse(bytes: &[u8]) -> Result<IpAddr, Malformed> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).map_err(|_| Malformed("an address is of no family"))
}

/// Determines the families, ignoring loopback and link-local addresses: IPv6 is covered if the first address is IPv6, or
/// with `dual_stack` if any address is.
pub fn families(addresses: &[IpAddr], dual_stack: bool) -> Result<HostAddresses, Error> {
    let usable = || addresses.iter().map(IpAddr::to_canonical).filter(|ip| is_usable(*ip));
    let host_ip = usable().next().ok_or_else(|| Error::NoAddress { seen: addresses.to_vec() })?;
    let ipv6_address = usable().find_map(|ip| match ip {
        IpAddr::V6(ip) => Some(ip),
        IpAddr::V4(_) => None,
    });
    let ipv6 = host_ip.is_ipv6() || (dual_stack && ipv6_address.is_some());
    Ok(HostAddresses { host_ip, ipv6, ipv6_address })
}

fn is_usable(ip: IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local() || v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.segments()[0] & 0xff0f == 0xff02,
    };
    !ip.is_loopback() && !link_local
}

#[cfg(test)]
mod tests {
    use netlink::Writer;

    use super::*;

    fn decide(addresses: &[&str], dual_stack: bool) -> Option<(String, bool)> {
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        families(&addresses, dual_stack).ok().map(|host| (host.host_ip.to_string(), host.ipv6))
    }

    fn some(host_ip: &str, ipv6: bool) -> Option<(String, bool)> {
        Some((host_ip.to_owned(), ipv6))
    }

    #[test]
    fn the_local_address_is_preferred_to_the_peers() {
        let message = |attrs: &[(u16, &[u8])]| {
            let mut w = Writer::default();
            w.raw(&[2, 32, 0, 0]);
            w.raw(&7_u32.to_ne_bytes());
            attrs.iter().for_each(|(kind, value)| w.attr(*kind, value));
            w.into_bytes().unwrap()
        };
        let (peer, own) = ((IFA_ADDRESS, [10, 0, 0, 9].as_slice()), (IFA_LOCAL, [10, 0, 0, 1].as_slice()));
        let ip = |last| IpAddr::from([10, 0, 0, last]);
        assert_eq!(own_address(&message(&[peer, own])), Ok(Some((7, ip(1)))));
        assert_eq!(own_address(&message(&[peer])), Ok(Some((7, ip(9)))));
        assert_eq!(own_address(&message(&[])), Ok(None));
        assert_eq!(own_address(&message(&[(IFA_LOCAL, &[1])])), Err(Malformed("an address is of no family")));
        assert_eq!(own_address(&[2, 32]), Err(Malformed("an address's header is cut off")));
    }

    #[test]
    fn with_one_family_dual_stack_has_no_effect() {
        for dual_stack in [false, true] {
            assert_eq!(decide(&["127.0.0.1", "10.0.0.1"], dual_stack), some("10.0.0.1", false));
            assert_eq!(decide(&["::1", "2001:db8::1"], dual_stack), some("2001:db8::1", true));
        }
    }

    #[test]
    fn the_first_address_decides_unless_dual_stack() {
        assert_eq!(decide(&["10.0.0.1", "2001:db8::1"], false), some("10.0.0.1", false));
        assert_eq!(decide(&["10.0.0.1", "2001:db8::1"], true), some("10.0.0.1", true));
        assert_eq!(decide(&["2001:db8::1", "10.0.0.1"], false), some("2001:db8::1", true));
        assert_eq!(decide(&["2001:db8::1", "10.0.0.1"], true), some("2001:db8::1", true));
    }

    #[test]
    fn loopback_and_link_local_addresses_are_ignored() {
        for ignored in ["127.0.0.9", "::1", "169.254.1.1", "fe80::1", "224.0.0.5", "ff02::1", "::ffff:169.254.1.1"] {
            assert_eq!(decide(&[ignored], true), None, "{ignored}");
            assert_eq!(decide(&[ignored, "10.0.0.1"], false), some("10.0.0.1", false), "{ignored}");
        }
        assert_eq!(decide(&["10.0.0.1", "fe80::1"], true), some("10.0.0.1", false));
    }

    #[test]
    fn a_mapped_address_is_treated_as_ipv4() {
        assert_eq!(decide(&["::ffff:10.0.0.1"], true), some("10.0.0.1", false));
    }

    #[test]
    fn without_a_usable_address_the_error_lists_all() {
        let error = families(&["127.0.0.1".parse().unwrap()], false).unwrap_err().to_string();
        assert!(error.contains("no valid local IP address found") && error.contains("127.0.0.1"), "{error}");
    }
}
