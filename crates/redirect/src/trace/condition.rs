//! A rule's conditions: parsed from iptables' arguments, and evaluated for a packet.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use ipnet::IpNet;
use ruleset::Proto;

use super::error::Error;
use super::words::Words;

/// The packet at a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) protocol: Proto,
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) in_interface: Option<String>,
    pub(super) out_interface: Option<String>,
    /// User and group of the sending socket; none for a packet that arrived.
    pub(super) owner: Option<(u32, u32)>,
    pub(super) mark: u32,
    /// The connection's mark.
    pub(super) ct_mark: u32,
}

/// A condition, and whether `!` precedes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    negated: bool,
    kind: Kind,
    /// The arguments, for messages.
    pub(super) text: String,
}

type Ports = Vec<RangeInclusive<u16>>;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// Lowercase name or number.
    Protocol(String),
    Source(IpNet),
    Destination(IpNet),
    InInterface(String),
    OutInterface(String),
    SourcePorts(Ports),
    DestinationPorts(Ports),
    EitherPorts(Ports),
    Uid(RangeInclusive<u32>),
    Gid(RangeInclusive<u32>),
    /// Names of connection states.
    States(Vec<String>),
    Mark {
        value: u32,
        mask: u32,
    },
    ConnMark {
        value: u32,
        mask: u32,
    },
    /// A match that only the kernel can evaluate.
    Unknown,
}

impl Condition {
    /// Parses the condition that starts with the option `name`; its values are read from `words`. `module` is the
    /// argument of the last `-m` before it.
    pub(super) fn parse(negated: bool, name: &str, module: &str, words: &mut Words<'_>) -> Result<Self, Error> {
        let values = words.values();
        let value = values.first().map_or("", String::as_str);
        let kind = match name {
            "-p" | "--protocol" => Some(Kind::Protocol(value.to_ascii_lowercase())),
            "-s" | "--source" => network(value).map(Kind::Source),
            "-d" | "--destination" => network(value).map(Kind::Destination),
            "-i" | "--in-interface" => Some(Kind::InInterface(value.to_owned())),
            "-o" | "--out-interface" => Some(Kind::OutInterface(value.to_owned())),
            "--sport" | "--source-port" | "--sports" | "--source-ports" => ports(value).map(Kind::SourcePorts),
            "--dport" | "--destination-port" | "--dports" | "--destination-ports" => {
                ports(value).map(Kind::DestinationPorts)
            }
            "--ports" => ports(value).map(Kind::EitherPorts),
            // A name cannot be evaluated, because its id is known only on the system on which the rule was written.
            "--uid-owner" => Some(ids(value).map_or(Kind::Unknown, Kind::Uid)),
            "--gid-owner" => Some(ids(value).map_or(Kind::Unknown, Kind::Gid)),
            "--ctstate" | "--state" => Some(Kind::States(value.split(',').map(str::to_ascii_uppercase).collect())),
            "--mark" if module == "connmark" => masked(value).map(|(value, mask)| Kind::ConnMark { value, mask }),
            "--mark" => masked(value).map(|(value, mask)| Kind::Mark { value, mask }),
            _ => Some(Kind::Unknown),
        };
        let not = if negated { "! " } else { "" };
        let text = std::iter::once(format!("{not}{name}")).chain(values).collect::<Vec<_>>().join(" ");
        kind.map(|kind| Self { negated, kind, text: text.clone() }).ok_or(Error::Value { text })
    }

    /// Returns a condition that only the kernel can evaluate: a match without options (`-m socket`), or an expression without
    /// iptables syntax.
    pub(super) fn unknown(text: String) -> Self {
        Self { negated: false, kind: Kind::Unknown, text }
    }

    /// Whether the packet satisfies the condition; none if that cannot be determined.
    pub(super) fn holds(&self, packet: &Packet) -> Option<bool> {
        let positive = match &self.kind {
            Kind::Protocol(name) => protocol(name, packet.protocol)?,
            Kind::Source(net) => contains(net, packet.source.ip()),
            Kind::Destination(net) => contains(net, packet.destination.ip()),
            Kind::InInterface(pattern) => packet.in_interface.as_ref().is_some_and(|name| is_named(name, pattern)),
            Kind::OutInterface(pattern) => packet.out_interface.as_ref().is_some_and(|name| is_named(name, pattern)),
            Kind::SourcePorts(ports) => has(ports, packet.source.port()),
            Kind::DestinationPorts(ports) => has(ports, packet.destination.port()),
            Kind::EitherPorts(ports) => has(ports, packet.source.port()) || has(ports, packet.destination.port()),
            // Without a socket `--uid-owner` is false and `! --uid-owner` is true (`owner_mt` in xt_owner.c).
            Kind::Uid(ids) => packet.owner.is_some_and(|(uid, _)| ids.contains(&uid)),
            Kind::Gid(ids) => packet.owner.is_some_and(|(_, gid)| ids.contains(&gid)),
            // The simulated packet is the first one of its connection, whose state is NEW.
            Kind::States(names) => names.iter().any(|name| name == "NEW"),
            Kind::Mark { value, mask } => packet.mark & mask == *value,
            Kind::ConnMark { value, mask } => packet.ct_mark & mask == *value,
            Kind::Unknown => return None,
        };
        Some(positive != self.negated)
    }
}

/// Whether the packet has the named protocol; none for an unknown name.
fn protocol(name: &str, of_packet: Proto) -> Option<bool> {
    let number = match of_packet {
        Proto::Tcp => "6",
        Proto::Udp => "17",
    };
    let known =
        ["all", "0", "tcp", "udp", "icmp", "ipv6-icmp", "icmpv6", "sctp", "dccp", "udplite", "gre", "esp", "ah"];
    let is_known = known.contains(&name) || name.parse::<u8>().is_ok();
    is_known.then(|| ["all", "0", of_packet.as_str(), number].contains(&name))
}

/// Whether a network contains an address; false if their families differ.
fn contains(net: &IpNet, ip: IpAddr) -> bool {
    net.contains(&ip)
}

/// Whether an interface matches a pattern; a final `+` matches any suffix.
fn is_named(name: &str, pattern: &str) -> bool {
    pattern.strip_suffix('+').map_or(name == pattern, |prefix| name.starts_with(prefix))
}

fn has(ports: &Ports, port: u16) -> bool {
    ports.iter().any(|range| range.contains(&port))
}

/// Parses an address, optionally with a prefix length or mask.
fn network(text: &str) -> Option<IpNet> {
    let Some((address, mask)) = text.split_once('/') else {
        return text.parse::<IpAddr>().ok().map(IpNet::from);
    };
    match mask.parse::<IpAddr>() {
        Ok(mask) => IpNet::with_netmask(address.parse().ok()?, mask).ok(),
        Err(_) => text.parse().ok(),
    }
}

/// Parses `80`, `80:90`, `:90`, `80:` and lists of these.
fn ports(text: &str) -> Option<Ports> {
    let number = |text: &str, default: u16| if text.is_empty() { Some(default) } else { text.parse().ok() };
    let range = |part: &str| match part.split_once(':') {
        Some((first, last)) => Some(number(first, 0)?..=number(last, u16::MAX)?),
        None => part.parse().ok().map(|port| port..=port),
    };
    text.split(',').map(range).collect()
}

/// Parses `1337` or `1000-1999`.
fn ids(text: &str) -> Option<RangeInclusive<u32>> {
    match text.split_once('-') {
        Some((first, last)) => Some(first.parse().ok()?..=last.parse().ok()?),
        None => text.parse().ok().map(|id| id..=id),
    }
}

/// Parses a number in decimal or hexadecimal.
pub(super) fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Parses `0x539` or `0x539/0xffff`.
pub(super) fn masked(text: &str) -> Option<(u32, u32)> {
    match text.split_once('/') {
        Some((value, mask)) => Some((number(value)?, number(mask)?)),
        None => number(text).map(|value| (value, u32::MAX)),
    }
}
