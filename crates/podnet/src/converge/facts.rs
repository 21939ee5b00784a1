//! The properties of a netns that determine how a desired redirection applies to it.
//!
//! Pure, apart from reading whether `lo` has IPv6.

use std::net::{IpAddr, Ipv6Addr};

use ruleset::Ipv6;

use super::{Error, Warning};
use crate::netns::{addresses, loopback_has_ipv6};

/// The properties of a netns that determine its rules and backend besides the desired redirection.
pub(super) struct NetnsFacts {
    /// Whether the rules of a fresh netns must cover IPv6.
    pub(super) ipv6: bool,
    /// Whether rules for IPv6 were necessary from the start: the first usable address is IPv6, or `lo` decides and has IPv6.
    pub(super) only_ipv6: bool,
    /// The first usable IPv6 address if addresses determine the families, whether the rules cover it or not.
    ipv6_address: Option<Ipv6Addr>,
}

impl NetnsFacts {
    /// Determines whether IPv6 is redirected in a netns with these addresses.
    pub(super) fn new(ipv6: Ipv6, addresses: &[IpAddr]) -> Result<Self, Error> {
        Ok(match ipv6 {
            Ipv6::OfAddresses { dual_stack } => {
                let host = addresses::families(addresses, dual_stack)?;
                Self { ipv6: host.ipv6, only_ipv6: host.host_ip.is_ipv6(), ipv6_address: host.ipv6_address }
            }
            Ipv6::OfLoopback { wanted } => {
                let ipv6 = wanted && loopback_has_ipv6();
                Self { ipv6, only_ipv6: ipv6, ipv6_address: None }
            }
        })
    }

    /// Whether the rules need IPv6 routes; `covered` is whether the rules cover IPv6.
    pub(super) fn needs_ipv6_routes(&self, ipv6: Ipv6, covered: bool) -> bool {
        match ipv6 {
            Ipv6::OfAddresses { .. } => covered,
            Ipv6::OfLoopback { .. } => self.ipv6,
        }
    }

    /// Returns a warning if the rules do not redirect all traffic; `covered` is whether they cover IPv6.
    pub(super) fn warning(&self, covered: bool) -> Option<Warning> {
        self.ipv6_address.filter(|_| !covered).map(Warning::Ipv6NotRedirected)
    }
}
