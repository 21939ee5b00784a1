//! A rule's target: parsed from iptables' arguments.

use std::net::{IpAddr, SocketAddr};

use super::condition::{masked, number};
use super::words::is_unprintable;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Accept,
    /// `DROP` or `REJECT`
    Drop,
    Return,
    /// Continues in a user-defined chain, and then with the next rule of this chain.
    Jump(String),
    /// Continues in a user-defined chain, and then in the chain that called this one.
    Goto(String),
    /// `REDIRECT` to this port; with `None` the destination's port stays.
    Redirect(Option<u16>),
    Dnat {
        address: Option<IpAddr>,
        port: Option<u16>,
    },
    Tproxy {
        port: u16,
        mark: u32,
        mask: u32,
    },
    /// The new mark is `mark & !mask ^ value`.
    SetMark {
        value: u32,
        mask: u32,
    },
    /// The connection's new mark is `ct & !mask ^ value`.
    SetConnMark {
        value: u32,
        mask: u32,
    },
    /// The connection's mark is `ct & !ct_mask ^ (mark & packet_mask)`.
    SaveMark {
        packet_mask: u32,
        ct_mask: u32,
    },
    /// The packet's mark is `mark & !packet_mask ^ (ct & ct_mask)`.
    RestoreMark {
        packet_mask: u32,
        ct_mask: u32,
    },
    /// Traversal continues, and the target's action cannot change the verdict.
    Continue,
    /// The effect of this target is not known here.
    Unknown(String),
}

/// Targets after which traversal continues and which change no property of the simulated packet.
const CONTINUING: [&str; 10] = ["LOG", "NFLOG", "TRACE", "TCPMSS", "DSCP", "TOS", "TTL", "HL", "CHECKSUM", "CLASSIFY"];

impl Target {
    /// Parses `name` with its options, each with its values; `user_chain` is whether `name` is a chain in the table.
    pub(super) fn parse(name: &str, options: &[(String, Vec<String>)], user_chain: bool) -> Self {
        let value = |names: &[&str]| {
            options.iter().find(|(option, _)| names.contains(&option.as_str()))?.1.first().map(String::as_str)
        };
        let unknown = || Self::Unknown(name.to_owned());
        let is_incomplete = options.iter().any(|(option, _)| is_unprintable(option));
        match name {
            _ if user_chain => Self::Jump(name.to_owned()),
            _ if CONTINUING.contains(&name) => Self::Continue,
            _ if is_incomplete => unknown(),
            "ACCEPT" => Self::Accept,
            "DROP" | "REJECT" => Self::Drop,
            "RETURN" => Self::Return,
            "REDIRECT" => match value(&["--to-ports", "--to-port"]) {
                None => Self::Redirect(None),
                Some(port) => port.parse().map_or_else(|_| unknown(), |port| Self::Redirect(Some(port))),
            },
            "DNAT" => value(&["--to-destination"]).and_then(dnat).unwrap_or_else(unknown),
            "TPROXY" => {
                let mark = value(&["--tproxy-mark"]).map_or(Some((0, 0)), masked);
                let port = value(&["--on-port"]).and_then(|port| port.parse().ok());
                mark.zip(port).map_or_else(unknown, |((mark, mask), port)| Self::Tproxy { port, mark, mask })
            }
            "MARK" => mark(&value).map_or_else(unknown, |(value, mask)| Self::SetMark { value, mask }),
            "CONNMARK" => conn_mark(&value, options).unwrap_or_else(unknown),
            // The kernel skips nat for a packet without a connection.
            "CT" if !options.iter().any(|(option, _)| option == "--notrack") => Self::Continue,
            _ => unknown(),
        }
    }
}

/// Parses the options of `MARK` as a value and a mask. As in iptables, `--set-mark` adds the bits of its value to the
/// mask.
fn mark<'a>(value: &impl Fn(&[&str]) -> Option<&'a str>) -> Option<(u32, u32)> {
    if let Some(found) = value(&["--set-xmark"]).and_then(masked) {
        return Some(found);
    }
    if let Some((value, mask)) = value(&["--set-mark"]).and_then(masked) {
        return Some((value, mask | value));
    }
    let bits = |name| value(&[name]).and_then(number);
    let or = || bits("--or-mark").map(|bits| (bits, bits));
    let and = || bits("--and-mark").map(|bits| (0, !bits));
    let xor = || bits("--xor-mark").map(|bits| (bits, 0));
    or().or_else(and).or_else(xor)
}

/// Parses the options of `CONNMARK`; `--mask` stands for both masks.
fn conn_mark<'a>(value: &impl Fn(&[&str]) -> Option<&'a str>, options: &[(String, Vec<String>)]) -> Option<Target> {
    let mask = |name| value(&[name, "--mask"]).map_or(Some(u32::MAX), number);
    let masks = || Some((mask("--nfmask")?, mask("--ctmask")?));
    let has = |name: &str| options.iter().any(|(option, _)| option == name);
    if has("--save-mark") {
        return masks().map(|(packet_mask, ct_mask)| Target::SaveMark { packet_mask, ct_mask });
    }
    if has("--restore-mark") {
        return masks().map(|(packet_mask, ct_mask)| Target::RestoreMark { packet_mask, ct_mask });
    }
    mark(value).map(|(value, mask)| Target::SetConnMark { value, mask })
}

/// Parses one address with or without a port (`10.0.0.1:80`, `[fd00::1]:80`, `:80`); ranges are not supported.
fn dnat(text: &str) -> Option<Target> {
    if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse().ok()) {
        return Some(Target::Dnat { address: None, port: Some(port) });
    }
    if let Ok(to) = text.parse::<SocketAddr>() {
        return Some(Target::Dnat { address: Some(to.ip()), port: Some(to.port()) });
    }
    let address = text.trim_matches(['[', ']']).parse().ok()?;
    Some(Target::Dnat { address: Some(address), port: None })
}
