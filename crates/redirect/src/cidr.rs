//! Address ranges.

use ipnet::{IpNet, Ipv4Net};

use super::Error;

/// The valid values of a list of ranges, for [`Error::allowed`].
pub const CIDRS: &str = "a comma-separated list of CIDRs such as 10.0.0.0/8";

/// A selection of address ranges: none, all, or a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CidrSelector {
    /// An empty string.
    #[default]
    None,
    /// `*`
    All,
    /// Ranges in the order of the input, with their host bits.
    List(Vec<IpNet>),
}

impl CidrSelector {
    /// Parses `*`, an empty string, or a list as in [`parse_cidrs`].
    pub fn parse(key: &str, text: &str) -> Result<Self, Error> {
        const ALLOWED: &str = "`*` or a comma-separated list of CIDRs such as 10.0.0.0/8";
        if text.trim() == "*" {
            return Ok(Self::All);
        }
        let ranges = parse_cidrs(key, text).map_err(|error| Error { allowed: ALLOWED, ..error })?;
        Ok(if ranges.is_empty() { Self::None } else { Self::List(ranges) })
    }
}

/// Parses a comma-separated list of CIDRs; ignores spaces around elements and empty elements, refuses `*`.
pub fn parse_cidrs(key: &str, text: &str) -> Result<Vec<IpNet>, Error> {
    let parts = text.split(',').map(str::trim).filter(|p| !p.is_empty());
    parts.map(|p| parse_cidr(p).ok_or_else(|| Error::new(key, p, CIDRS))).collect()
}

/// Parses a CIDR as Go's `netip.ParsePrefix` does, which refuses numbers with leading zeros.
fn parse_cidr(text: &str) -> Option<IpNet> {
    let (addr, bits) = text.split_once('/')?;
    let is_number = bits.bytes().all(|b| b.is_ascii_digit()) && (bits == "0" || !bits.starts_with('0'));
    // The parser of the standard library refuses an address with leading zeros.
    IpNet::new(addr.parse().ok()?, bits.parse().ok().filter(|_| is_number)?).ok()
}

/// Parses a range within 127.0.0.0/8 and keeps its host bits.
pub fn parse_loopback(key: &str, text: &str) -> Result<Ipv4Net, Error> {
    let net = parse_cidr(text.trim()).and_then(|net| if let IpNet::V4(net) = net { Some(net) } else { None });
    let net = net.filter(|net| net.addr().is_loopback() && net.prefix_len() >= 8);
    net.ok_or_else(|| Error::new(key, text, "a CIDR within 127.0.0.0/8, such as 127.0.0.1/32"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_ranges_are_within_127_8() {
        for text in ["127.0.0.1/32", "127.0.0.1/8", "127.1.2.3/24"] {
            assert_eq!(parse_loopback("key", text).map(|net| net.to_string()), Ok(text.to_owned()));
        }
        for text in [
            "192.168.1.1/24",
            "10.0.0.1/7",
            "172.16.0.1/40",
            "127.0.0.1/7",
            "::1/128",
            "127.0.0.1",
            "127.0.0.1/032",
            "",
        ] {
            let error = parse_loopback("key", text).unwrap_err();
            assert_eq!((&*error.value, error.allowed), (text, "a CIDR within 127.0.0.0/8, such as 127.0.0.1/32"));
        }
    }

    #[test]
    fn a_range_is_refused_where_go_refuses_it() {
        for text in ["10.0.0.0/8", "10.0.0.0/0", "::/0", "::ffff:10.0.0.1/96", "0000::1/128", "::10.0.0.1/100"] {
            assert_eq!(parse_cidrs("key", text).map(|nets| nets.len()), Ok(1), "{text}");
        }
        for text in [
            "010.0.0.0/8",
            "10.0.0.00/8",
            "10.0.0.0/08",
            "10.0.0.0/00",
            "10.0.0.0/+8",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0/8",
            "10.0.0.0",
            "::/00",
            "::010.0.0.1/128",
            "00000::1/128",
            "::1/129",
            "1::2::3/8",
            "fe80::1%eth0/64",
        ] {
            parse_cidrs("key", text).unwrap_err();
        }
    }
}
