//! Verifies redirection from inside the pod: a connection to an address without listener must arrive at our own
//! listener.
//!
//! `istio-iptables --run-validation` calls [`run`] as the proxy's user, because only that user's loopback traffic is
//! treated as inbound. Needs no capability and writes no file. The caller handles the result.

mod probe;
mod report;

pub use report::{FamilyReport, Outcome, Reason, Report};

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;

use ruleset::{Family, Probe};

use crate::netns::addresses::HostAddresses;

/// Returns the families that the pod's rules cover: IPv6 as decided for the rules, IPv4 if the pod has such an address.
pub fn families(addresses: &[IpAddr], host: HostAddresses) -> Vec<Family> {
    let v4 = host.host_ip.is_ipv4() || addresses.iter().any(|ip| ip.is_ipv4() && !ip.is_loopback());
    let families = [v4.then_some(Family::V4), host.ipv6.then_some(Family::V6)];
    families.into_iter().flatten().collect()
}

/// Probes all `families` concurrently, in the calling thread's netns.
pub fn run(probe: &Probe, families: &[Family]) -> Report {
    thread::scope(|scope| {
        let probes: Vec<_> = families.iter().map(|family| scope.spawn(|| probe::family(probe, *family))).collect();
        let reports = probes.into_iter().zip(families);
        Report {
            families: reports
                .map(|(probe, family)| probe.join().unwrap_or_else(|_| FamilyReport::panicked(*family)))
                .collect(),
        }
    })
}

/// Returns the address without a listener. The proxy connects to the application from this address: packets from it are
/// never redirected, and the proxy's packets to it always are.
fn target(probe: &Probe, family: Family) -> SocketAddr {
    let ip: IpAddr = match family {
        Family::V4 => Ipv4Addr::new(127, 0, 0, 6).into(),
        Family::V6 => Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6).into(),
    };
    SocketAddr::new(ip, probe.probe_port.0)
}

fn listen(probe: &Probe, family: Family) -> [SocketAddr; 2] {
    [probe.proxy_port, probe.inbound_capture_port].map(|port| SocketAddr::new(loopback(family), port.0))
}

fn loopback(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::addresses;

    fn covered(addresses: &[&str], dual_stack: bool) -> Vec<Family> {
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        families(&addresses, addresses::families(&addresses, dual_stack).unwrap())
    }

    #[test]
    fn families_with_rules_are_probed() {
        assert_eq!(covered(&["127.0.0.1", "10.0.0.1", "::1"], true), [Family::V4]);
        assert_eq!(covered(&["127.0.0.1", "::1", "fd00::1"], false), [Family::V6]);
        assert_eq!(covered(&["127.0.0.1", "10.0.0.1", "::1", "fd00::1"], true), [Family::V4, Family::V6]);
    }

    #[test]
    fn ipv6_without_rules_is_not_probed() {
        assert_eq!(covered(&["127.0.0.1", "10.0.0.1", "::1", "fd00::1"], false), [Family::V4]);
    }
}
