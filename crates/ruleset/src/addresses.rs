//! Formats addresses and address ranges.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

/// Formats an address as glibc's `inet_ntop`, and therefore iptables, does. Rust's own format differs for IPv4-compatible
/// addresses (`::127.0.0.53`).
pub fn fmt_addr(addr: IpAddr) -> String {
    match addr {
        IpAddr::V6(v6) if is_v4_compatible(v6) => {
            let [.., a, b, c, d] = v6.octets();
            format!("::{a}.{b}.{c}.{d}")
        }
        other => other.to_string(),
    }
}

/// Formats a range as Istio does: the address as in [`fmt_addr`], with host bits, and the prefix length.
pub fn fmt_net(net: &IpNet) -> String {
    format!("{}/{}", fmt_addr(net.addr()), net.prefix_len())
}

fn is_v4_compatible(v6: Ipv6Addr) -> bool {
    let s = v6.segments();
    s[..6].iter().all(|w| *w == 0) && s[6] != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_printed_as_glibc_prints_them() {
        let expected = [
            ("::7f00:35", "::127.0.0.53"),
            ("::ffff:10.0.0.1", "::ffff:10.0.0.1"),
            ("::1:0", "::0.1.0.0"),
            ("::6", "::6"),
            ("::", "::"),
            ("2001:db8:0:0:1::", "2001:db8:0:0:1::"),
            ("10.0.0.1", "10.0.0.1"),
        ];
        for (text, printed) in expected {
            assert_eq!(fmt_addr(text.parse().unwrap()), printed);
        }
    }

    #[test]
    fn ranges_keep_their_host_bits() {
        assert_eq!(fmt_net(&"127.0.0.1/8".parse().unwrap()), "127.0.0.1/8");
        assert_eq!(fmt_net(&"::127.0.0.53/104".parse().unwrap()), "::127.0.0.53/104");
    }
}
