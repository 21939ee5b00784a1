//! A rule's target: parsed from iptables' arguments.

use std::net::{IpAddr, SocketAddr};

use super::condition::{masked, number};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Accept,
    /// `DROP` or `REJECT`
    Drop,
    Return,
    /// A user-defined chain, which returns here.
    Jump(String),
    /// A user-defined chain, which returns to the caller of this chain.
    Goto(String),
    /// Without a port the destination's port stays.
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
    SaveMark,
    RestoreMark,
    /// Traversal continues, and what the target does cannot change the verdict.
    Continue,
    /// The effect of this target is not known here.
    Unknown(String),
}

/// Targets after which traversal continues and which change no property of [`Packet`](super::Packet).
const CONTINUING: [&str; 12] =
    ["LOG", "NFLOG", "CT", "NOTRACK", "TRACE", "TCPMSS", "DSCP", "TOS", "TTL", "HL", "CHECKSUM", "CLASSIFY"];

impl Target {
    /// Parses `name` with its options, each with its values; `user_chain` is whether `name` is a chain of the table.
    pub(super) fn parse(name: &str, options: &[(String, Vec<String>)], user_chain: bool) -> Self {
        let value = |names: &[&str]| {
            options.iter().find(|(option, _)| names.contains(&option.as_str()))?.1.first().map(String::as_str)
        };
        let unknown = || Self::Unknown(name.to_owned());
        match name {
            _ if user_chain => Self::Jump(name.to_owned()),
            "ACCEPT" => Self::Accept,
            "DROP" | "REJECT" => Self::Drop,
            "RETURN" => Self::Return,
            "REDIRECT" => match value(&["--to-ports", "--to-port"]) {
                None => Self::Redirect(None),
                Some(port) => port.parse().map_or_else(|_| unknown(), |port| Self::Redirect(Some(port))),
            },
            "DNAT" => value(&["--to-destination"]).and_then(dnat).unwrap_or_else(unknown),
            "TPROXY" => {
                let (mark, mask) = value(&["--tproxy-mark"]).and_then(masked).unwrap_or((0, 0));
                let port = value(&["--on-port"]).and_then(|port| port.parse().ok());
                port.map_or_else(unknown, |port| Self::Tproxy { port, mark, mask })
            }
            "MARK" => mark(&value).unwrap_or_else(unknown),
            "CONNMARK" if options.iter().any(|(name, _)| name == "--save-mark") => Self::SaveMark,
            "CONNMARK" if options.iter().any(|(name, _)| name == "--restore-mark") => Self::RestoreMark,
            _ if CONTINUING.contains(&name) => Self::Continue,
            _ => unknown(),
        }
    }
}

/// Parses the options of `MARK`: `--set-mark` replaces the bits that it sets, too.
fn mark<'a>(value: &impl Fn(&[&str]) -> Option<&'a str>) -> Option<Target> {
    if let Some((value, mask)) = value(&["--set-xmark"]).and_then(masked) {
        return Some(Target::SetMark { value, mask });
    }
    if let Some((value, mask)) = value(&["--set-mark"]).and_then(masked) {
        return Some(Target::SetMark { value, mask: mask | value });
    }
    let bits = |name| value(&[name]).and_then(number);
    let or = || bits("--or-mark").map(|bits| Target::SetMark { value: bits, mask: bits });
    let and = || bits("--and-mark").map(|bits| Target::SetMark { value: 0, mask: !bits });
    let xor = || bits("--xor-mark").map(|bits| Target::SetMark { value: bits, mask: 0 });
    or().or_else(and).or_else(xor)
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
