//! Lists of TCP and UDP ports.

use ruleset::Port;

use super::Error;

/// A selection of ports: none, all, or a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PortSelector {
    /// An empty string.
    #[default]
    None,
    /// `*`
    All,
    /// Ports in the order of the input.
    List(Vec<Port>),
}

/// Parses a comma-separated list; ignores spaces around elements and empty elements. Refuses `*`, and numbers with leading
/// zeros, which iptables reads as octal: it programs port 8 for `010` and refuses `080`.
pub fn parse_ports(key: &str, text: &str) -> Result<Vec<Port>, Error> {
    let parts = text.split(',').map(str::trim).filter(|p| !p.is_empty());
    parts
        .map(|p| {
            let digits = p.bytes().all(|b| b.is_ascii_digit()) && (p == "0" || !p.starts_with('0'));
            let port = digits.then(|| p.parse().ok()).flatten();
            port.map(Port).ok_or_else(|| Error::new(key, p, "a comma-separated list of ports from 0 to 65535"))
        })
        .collect()
}

impl PortSelector {
    /// Parses `*`, an empty string, or a list as in [`parse_ports`].
    pub fn parse(key: &str, text: &str) -> Result<Self, Error> {
        const ALLOWED: &str = "`*` or a comma-separated list of ports from 0 to 65535";
        if text.trim() == "*" {
            return Ok(Self::All);
        }
        let ports = parse_ports(key, text).map_err(|error| Error { allowed: ALLOWED, ..error })?;
        Ok(if ports.is_empty() { Self::None } else { Self::List(ports) })
    }
}
