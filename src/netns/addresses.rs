//! The addresses of a netns, and what they say of its families.
//!
//! [`read`] is one dump; [`families`] decides and is pure. `converge` calls both for every pod: they are on the hot path.

use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};

use super::Error;
use super::rtnl::Rtnl;

/// What a pod's addresses say of its families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostAddresses {
    /// The first usable address.
    pub host_ip: IpAddr,
    /// The rules are to cover IPv6.
    pub ipv6: bool,
}

/// All addresses in the calling thread's netns, in the kernel's order: IPv4 first, by interface.
pub fn read() -> Result<Vec<IpAddr>, Error> {
    let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let answers = Rtnl::open()?.dump("listing addresses", request)?;
    Ok(answers.iter().filter_map(own_address).collect())
}

/// Of a point-to-point interface `Address` is the peer's and `Local` the own; IPv6 sends `Address` alone.
fn own_address(message: &RouteNetlinkMessage) -> Option<IpAddr> {
    let RouteNetlinkMessage::NewAddress(message) = message else { return None };
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(ip) => Some(*ip),
        _ => None,
    });
    local.or_else(|| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(ip) => Some(*ip),
            _ => None,
        })
    })
}

/// Istio's choice: loopback and link-local addresses do not count; the first of the others decides whether the pod is
/// an IPv6 pod, or with `dual_stack`, whether any of them is IPv6.
pub fn families(addresses: &[IpAddr], dual_stack: bool) -> Result<HostAddresses, Error> {
    let mut usable = addresses.iter().map(IpAddr::to_canonical).filter(|ip| is_usable(*ip));
    let host_ip = usable.next().ok_or_else(|| Error::NoAddress { seen: addresses.to_vec() })?;
    let ipv6 = host_ip.is_ipv6() || (dual_stack && usable.any(|ip| ip.is_ipv6()));
    Ok(HostAddresses { host_ip, ipv6 })
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
    use super::*;

    fn decide(addresses: &[&str], dual_stack: bool) -> Option<(String, bool)> {
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        families(&addresses, dual_stack).ok().map(|host| (host.host_ip.to_string(), host.ipv6))
    }

    fn some(host_ip: &str, ipv6: bool) -> Option<(String, bool)> {
        Some((host_ip.to_owned(), ipv6))
    }

    #[test]
    fn one_family_decides_alone() {
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
    fn loopback_and_link_local_do_not_count() {
        for ignored in ["127.0.0.9", "::1", "169.254.1.1", "fe80::1", "224.0.0.5", "ff02::1", "::ffff:169.254.1.1"] {
            assert_eq!(decide(&[ignored], true), None, "{ignored}");
            assert_eq!(decide(&[ignored, "10.0.0.1"], false), some("10.0.0.1", false), "{ignored}");
        }
        assert_eq!(decide(&["10.0.0.1", "fe80::1"], true), some("10.0.0.1", false));
    }

    #[test]
    fn a_mapped_address_is_an_ipv4_address() {
        assert_eq!(decide(&["::ffff:10.0.0.1"], true), some("10.0.0.1", false));
    }

    #[test]
    fn names_what_it_saw_where_no_address_counts() {
        let error = families(&["127.0.0.1".parse().unwrap()], false).unwrap_err().to_string();
        assert!(error.contains("no valid local IP address found") && error.contains("127.0.0.1"), "{error}");
    }
}
