//! Formats any rule of the kernel as `iptables-save` prints it.
//!
//! For messages. An expression without iptables syntax is printed as its name in brackets. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ruleset::{Port, fmt_addr};

use super::expr::{Base, Ct, Expr, Meta, Op, Set, Value, Verdict};
use super::wire;

mod xt;

pub(super) fn rule(chain: &str, exprs: &[Expr]) -> String {
    let mut printer = Printer::default();
    exprs.iter().for_each(|expr| printer.read(expr));
    let Printer { addresses, interfaces, protocol, matches, targets, .. } = printer;
    let parts = addresses.into_iter().chain(interfaces).chain(protocol).chain(matches).chain(targets);
    std::iter::once(format!("-A {chain}")).chain(parts).collect::<Vec<_>>().join(" ")
}

/// The parts of a rule in the order in which they are printed.
#[derive(Default)]
struct Printer<'a> {
    addresses: Vec<String>,
    interfaces: Vec<String>,
    protocol: Option<String>,
    matches: Vec<String>,
    /// A native rule can have several.
    targets: Vec<String>,
    /// The protocol's name, which is also the name of the extension that matches its ports.
    ports_of: Option<&'static str>,
    /// The port of a native TPROXY statement.
    tproxy: Option<u16>,
    /// The expression that loaded the register, and the mask that was applied to the register.
    loaded: Option<&'a Expr>,
    mask: Option<Value>,
    /// The exclusive or applied after the mask.
    xor: Option<Value>,
}

impl<'a> Printer<'a> {
    fn read(&mut self, expr: &'a Expr) {
        match expr {
            Expr::Counter => {}
            Expr::Meta(_) | Expr::Payload { .. } | Expr::Ct(_) | Expr::Load(_) => {
                (self.loaded, self.mask, self.xor) = (Some(expr), None, None);
            }
            Expr::Mask(mask) => self.mask = Some(*mask),
            Expr::MaskXor(mask, xor) => (self.mask, self.xor) = (Some(*mask), Some(*xor)),
            Expr::Cmp(op, value) => self.compare(*op, *value),
            Expr::Lookup { set: Set::Ports(ports), negated } => {
                self.matches.push(format!("-m multiport {}--dports {}", not(*negated), list(ports)));
            }
            Expr::Match(xt) => self.matches.push(xt::extension_match(xt)),
            Expr::Target(xt) => self.targets.push(xt::extension_target(xt)),
            // Native TPROXY sets a mark and accepts, in the same rule.
            Expr::Verdict(Verdict::Accept) if self.tproxy.is_some() => {}
            Expr::Verdict(verdict) => self.targets.push(match verdict {
                Verdict::Drop => "-j DROP".to_owned(),
                Verdict::Accept => "-j ACCEPT".to_owned(),
                Verdict::Return => "-j RETURN".to_owned(),
                Verdict::Jump(chain) => format!("-j {chain}"),
                Verdict::Goto(chain) => format!("-g {chain}"),
            }),
            Expr::Redirect => self.with_constant("-j REDIRECT", |v| format!("--to-ports {}", port(v))),
            Expr::SetMeta(Meta::Mark) => self.set_mark(),
            Expr::SetCt(Ct::Mark) => self.targets.push(self.set_conn_mark()),
            Expr::Tproxy(_) => {
                self.tproxy = self.constant().map(port);
                self.with_constant("-j TPROXY", |v| format!("--on-port {}", port(v)));
            }
            Expr::SetCt(Ct::Zone) => self.with_constant("-j CT", |v| format!("--zone {}", native(v))),
            Expr::Other { name, .. } => {
                // It may have loaded another value into the register.
                (self.loaded, self.mask, self.xor) = (None, None, None);
                match is_passive(expr, name) {
                    true => self.matches.push(format!("[{name}]")),
                    false => self.targets.push(format!("-j [{name}]")),
                }
            }
            Expr::Lookup { .. } => self.matches.push("[set]".to_owned()),
            Expr::SetMeta(_) | Expr::SetCt(_) => self.matches.push("[statement]".to_owned()),
        }
    }

    /// Adds a target whose option has the value of the loaded constant.
    fn with_constant(&mut self, target: &str, option: impl Fn(Value) -> String) {
        let option = self.constant().map_or_else(|| "[...]".to_owned(), option);
        self.targets.push(format!("{target} {option}"));
    }

    /// Formats the statement that sets the packet's mark: CONNMARK if it copies the connection's mark, TPROXY if it
    /// sets a constant after a TPROXY statement, and otherwise MARK.
    fn set_mark(&mut self) {
        let target = match (self.tproxy, self.loaded) {
            (_, Some(Expr::Ct(Ct::Mark))) => self.copied_mark("--restore-mark", |bits| (u32::MAX, bits)),
            (Some(port), _) if let Some(bits) = self.replaced_bits(Meta::Mark) => {
                self.targets.pop();
                tproxy(port, bits)
            }
            _ => self.replaced_mark("MARK", Meta::Mark),
        };
        self.targets.push(target);
    }

    /// Formats the statement that sets the connection's mark: to the packet's mark, to a constant, or to its old value
    /// with some bits changed.
    fn set_conn_mark(&self) -> String {
        match self.loaded {
            Some(Expr::Meta(Meta::Mark)) => self.copied_mark("--save-mark", |bits| (bits, u32::MAX)),
            _ => self.replaced_mark("CONNMARK", Ct::Mark),
        }
    }

    /// Returns mark and mask if a mark is set to a constant, or to its old value with some bits changed; `own` loads the
    /// old value. iptables stores `(own & !mask) ^ mark`.
    fn replaced_bits(&self, own: impl Into<Expr>) -> Option<(u32, u32)> {
        match self.loaded {
            Some(Expr::Load(mark)) => Some((native(*mark), u32::MAX)),
            Some(loaded) if *loaded == own.into() => {
                Some((self.xor.map_or(0, native), !self.mask.map_or(u32::MAX, native)))
            }
            _ => None,
        }
    }

    /// Formats the target that sets a mark to a constant, or to its old value with some bits changed.
    fn replaced_mark(&self, target: &str, own: impl Into<Expr>) -> String {
        match self.replaced_bits(own) {
            Some((mark, mask)) => format!("-j {target} --set-xmark {mark:#x}/{mask:#x}"),
            None => format!("-j {target} [...]"),
        }
    }

    /// Formats the target that copies one mark to the other. If only some bits are copied, `masks` converts these bits
    /// to the target's masks for the packet and for the connection; all other bits are cleared.
    fn copied_mark(&self, option: &str, masks: impl Fn(u32) -> (u32, u32)) -> String {
        let masks = self.mask.map(|bits| masks(native(bits)));
        match (masks, self.xor) {
            (None, None) => format!("-j CONNMARK {option}"),
            (Some((packet, conn)), None) => format!("-j CONNMARK {option} --nfmask {packet:#x} --ctmask {conn:#x}"),
            (_, Some(_)) => format!("-j CONNMARK {option} [...]"),
        }
    }

    fn constant(&self) -> Option<Value> {
        match self.loaded {
            Some(Expr::Load(value)) => Some(*value),
            _ => None,
        }
    }

    fn compare(&mut self, op: Op, value: Value) {
        let value = self.xor.and_then(|xor| exclusive_or(value, xor)).unwrap_or(value);
        let not = not(op == Op::Unequal);
        match self.loaded {
            Some(Expr::Meta(Meta::InInterface)) => self.interfaces.push(format!("{not}-i {}", interface(value))),
            Some(Expr::Meta(Meta::OutInterface)) => self.interfaces.push(format!("{not}-o {}", interface(value))),
            Some(Expr::Meta(Meta::Protocol)) => {
                let (name, ports_of) = protocol(value);
                (self.protocol, self.ports_of) = (Some(format!("{not}-p {name}")), ports_of);
            }
            // The match of the family is not printed, because a table of iptables has only one family.
            Some(Expr::Meta(Meta::Family)) => {}
            Some(Expr::Meta(Meta::Uid)) => self.matches.push(format!("-m owner {not}--uid-owner {}", native(value))),
            Some(Expr::Meta(Meta::Gid)) => self.matches.push(format!("-m owner {not}--gid-owner {}", native(value))),
            Some(Expr::Meta(Meta::Mark)) => self.matches.push(format!("-m mark {not}--mark {}", self.mark(value))),
            Some(Expr::Ct(Ct::Mark)) => self.matches.push(format!("-m connmark {not}--mark {}", self.mark(value))),
            Some(Expr::Ct(Ct::State)) => self.state(op, value),
            Some(Expr::Payload { base: Base::Network, offset, .. }) => match self.address(*offset, value) {
                Some(address) if *offset == 12 || *offset == 8 => {
                    self.addresses.insert(0, format!("{not}-s {address}"));
                }
                Some(address) => self.addresses.push(format!("{not}-d {address}")),
                None => self.matches.push("[header]".to_owned()),
            },
            Some(Expr::Payload { base: Base::Transport, offset: offset @ (0 | 2), length: 2 }) => {
                let side = if *offset == 0 { "sport" } else { "dport" };
                let name = self.ports_of.unwrap_or("tcp");
                self.matches.push(format!("-m {name} {not}--{side} {}", port(value)));
            }
            _ => self.matches.push("[comparison]".to_owned()),
        }
    }

    /// Formats a test of bits of the connection's state. nft encodes such a test as a comparison of the masked bits
    /// with 0, or of the whole state with a constant.
    fn state(&mut self, op: Op, value: Value) {
        let (negated, bits) = match (self.mask, native(value)) {
            (Some(mask), 0) => (op == Op::Equal, native(mask)),
            (None, state) => (op == Op::Unequal, state),
            (Some(_), _) => return self.matches.push("[comparison]".to_owned()),
        };
        self.matches.push(format!("-m conntrack {}--ctstate {}", not(negated), states(bits)));
    }

    fn mark(&self, value: Value) -> String {
        match self.mask.map(native) {
            None | Some(u32::MAX) => format!("{:#x}", native(value)),
            Some(mask) => format!("{:#x}/{mask:#x}", native(value)),
        }
    }

    /// Formats an address. Family and direction follow from its offset: IPv4 has source and destination at 12 and 16,
    /// IPv6 at 8 and 24.
    fn address(&self, offset: u8, value: Value) -> Option<String> {
        let bytes = value.as_bytes();
        let parse = |bytes: &[u8]| -> Option<IpAddr> {
            match offset {
                12 | 16 => Some(Ipv4Addr::from(padded::<4>(bytes)?).into()),
                8 | 24 => Some(Ipv6Addr::from(padded::<16>(bytes)?).into()),
                _ => None,
            }
        };
        let address = fmt_addr(parse(bytes)?);
        let Some(mask) = &self.mask else { return Some(format!("{address}/{}", bytes.len() * 8)) };
        let mask = parse(mask.as_bytes())?;
        // A mask that is not a prefix is printed as an address.
        Some(match ipnet::ip_mask_to_prefix(mask) {
            Ok(length) => format!("{address}/{length}"),
            Err(_) => format!("{address}/{}", fmt_addr(mask)),
        })
    }
}

/// Expressions of nf_tables that read, log, count or fill a set. Any other expression can decide about the packet, and is
/// printed as a target.
const PASSIVE: [&str; 23] = [
    "bitwise",
    "byteorder",
    "cmp",
    "connlimit",
    "ct",
    "dynset",
    "exthdr",
    "fib",
    "hash",
    "last",
    "limit",
    "log",
    "lookup",
    "meta",
    "numgen",
    "objref",
    "osf",
    "payload",
    "quota",
    "range",
    "rt",
    "socket",
    "xfrm",
];

/// Whether an expression that our rules do not use cannot decide about the packet.
fn is_passive(expr: &Expr, name: &str) -> bool {
    PASSIVE.contains(&name) && !wire::is_verdict_map(expr)
}

/// Formats TPROXY with its mark and mask.
fn tproxy(port: u16, (mark, mask): (u32, u32)) -> String {
    format!("-j TPROXY --on-port {port} --tproxy-mark {mark:#x}/{mask:#x}")
}

fn not(negated: bool) -> &'static str {
    if negated { "! " } else { "" }
}

/// Returns `value ^ xor`, the constant to compare with before the exclusive or; none if the sizes differ.
fn exclusive_or(value: Value, xor: Value) -> Option<Value> {
    let bytes: Vec<u8> = value.as_bytes().iter().zip(xor.as_bytes()).map(|(a, b)| a ^ b).collect();
    (value.as_bytes().len() == xor.as_bytes().len()).then(|| Value::new(&bytes)).flatten()
}

fn padded<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    let mut all = [0; N];
    all.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(all)
}

/// Reads a number in host byte order.
fn native(value: Value) -> u32 {
    padded(value.as_bytes()).map_or(0, u32::from_ne_bytes)
}

fn port(value: Value) -> u16 {
    padded(value.as_bytes()).map_or(0, u16::from_be_bytes)
}

/// Formats an interface name; a name without a final zero byte is a prefix.
fn interface(value: Value) -> String {
    let bytes = value.as_bytes();
    let name: String = bytes.iter().take_while(|b| **b != 0).map(|b| char::from(*b)).collect();
    if bytes.contains(&0) { name } else { name + "+" }
}

/// Returns the protocol's name, and the name of the extension that matches its ports.
fn protocol(value: Value) -> (String, Option<&'static str>) {
    match value.as_bytes() {
        [6] => ("tcp".to_owned(), Some("tcp")),
        [17] => ("udp".to_owned(), Some("udp")),
        [1] => ("icmp".to_owned(), None),
        [58] => ("ipv6-icmp".to_owned(), None),
        [132] => ("sctp".to_owned(), Some("sctp")),
        bytes => (bytes.iter().map(u8::to_string).collect(), None),
    }
}

/// Formats the bits of a connection state in iptables' order.
fn states(bits: u32) -> String {
    let names = [(1, "INVALID"), (8, "NEW"), (4, "RELATED"), (2, "ESTABLISHED"), (64, "UNTRACKED")];
    names.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect::<Vec<_>>().join(",")
}

fn list(ports: &[Port]) -> String {
    ports.iter().map(Port::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
