//! Formats any rule of the kernel as `iptables-save` prints it.
//!
//! For messages. An expression without iptables syntax is printed as its name in brackets. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ruleset::{Port, fmt_addr};

use super::expr::{Base, Ct, Expr, Meta, Op, Set, Value, Verdict, Xt};

pub(super) fn rule(chain: &str, exprs: &[Expr]) -> String {
    let mut printer = Printer::default();
    exprs.iter().for_each(|expr| printer.read(expr));
    let Printer { addresses, interfaces, protocol, matches, target, .. } = printer;
    let parts = addresses.into_iter().chain(interfaces).chain(protocol).chain(matches).chain(target);
    std::iter::once(format!("-A {chain}")).chain(parts).collect::<Vec<_>>().join(" ")
}

/// The parts of a rule in the order in which they are printed.
#[derive(Default)]
struct Printer<'a> {
    addresses: Vec<String>,
    interfaces: Vec<String>,
    protocol: Option<String>,
    matches: Vec<String>,
    target: Option<String>,
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
            Expr::Match(xt) => self.matches.push(xt_match(xt)),
            Expr::Target(xt) => self.target = Some(xt_target(xt)),
            // Native TPROXY sets a mark and accepts, in the same rule.
            Expr::Verdict(Verdict::Accept) if self.tproxy.is_some() => {}
            Expr::Verdict(verdict) => {
                self.target = Some(match verdict {
                    Verdict::Drop => "-j DROP".to_owned(),
                    Verdict::Accept => "-j ACCEPT".to_owned(),
                    Verdict::Return => "-j RETURN".to_owned(),
                    Verdict::Jump(chain) => format!("-j {chain}"),
                    Verdict::Goto(chain) => format!("-g {chain}"),
                });
            }
            Expr::Redirect => self.target = self.constant().map(|v| format!("-j REDIRECT --to-ports {}", port(v))),
            Expr::SetMeta(Meta::Mark) => self.target = Some(self.set_mark()),
            Expr::SetCt(Ct::Mark) => self.target = Some(self.set_conn_mark()),
            Expr::Tproxy(_) => {
                self.tproxy = self.constant().map(port);
                self.target = self.tproxy.map(|port| tproxy(port, None));
            }
            Expr::SetCt(Ct::Zone) => self.target = self.constant().map(|v| format!("-j CT --zone {}", native(v))),
            Expr::Other { name, .. } => self.matches.push(format!("[{name}]")),
            Expr::Lookup { .. } => self.matches.push("[set]".to_owned()),
            Expr::SetMeta(_) | Expr::SetCt(_) => self.matches.push("[statement]".to_owned()),
        }
    }

    /// Formats the statement that sets the packet's mark: CONNMARK if it copies the connection's mark, TPROXY if it
    /// sets a constant after a TPROXY statement, and otherwise MARK.
    fn set_mark(&self) -> String {
        match (self.tproxy, self.loaded) {
            (_, Some(Expr::Ct(Ct::Mark))) => self.copied_mark("--restore-mark", |bits| (u32::MAX, bits)),
            (Some(port), _) if let Some(bits) = self.replaced_bits(Meta::Mark) => tproxy(port, Some(bits)),
            _ => self.replaced_mark("MARK", Meta::Mark),
        }
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

/// Formats TPROXY with its mark and mask.
fn tproxy(port: u16, mark: Option<(u32, u32)>) -> String {
    let mark = mark.map(|(mark, mask)| format!(" --tproxy-mark {mark:#x}/{mask:#x}"));
    format!("-j TPROXY --on-port {port}{}", mark.unwrap_or_default())
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

/// Reads a field of an extension's structure.
fn field<const N: usize>(xt: &Xt, at: usize) -> [u8; N] {
    xt.bytes.get(at..at + N).and_then(|b| b.try_into().ok()).unwrap_or([0; N])
}

/// Formats a match of iptables; for its structure see `xt.rs`.
fn xt_match(xt: &Xt) -> String {
    match (&*xt.name, xt.revision) {
        ("owner", 1) => owner(xt),
        ("multiport", 1) => {
            let [flags, count] = field(xt, 0);
            let ports = (0..usize::from(count).min(15)).map(|i| Port(u16::from_ne_bytes(field(xt, 2 + 2 * i))));
            let which = ["sports", "dports", "ports"].get(usize::from(flags)).unwrap_or(&"ports");
            let [inverted] = field(xt, 47);
            format!("-m multiport {}--{which} {}", not(inverted != 0), list(&ports.collect::<Vec<_>>()))
        }
        ("conntrack", 3) if u16::from_ne_bytes(field(xt, 146)) == 1 => {
            let inverted = u16::from_ne_bytes(field(xt, 148)) & 1 != 0;
            let states = states(u16::from_ne_bytes(field(xt, 150)).into());
            format!("-m conntrack {}--ctstate {states}", not(inverted))
        }
        // `xt_mark_mtinfo1` and `xt_connmark_mtinfo1` have the same layout.
        (name @ ("mark" | "connmark"), 1) => {
            let ([inverted], mark) = (field(xt, 8), u32::from_ne_bytes(field(xt, 0)));
            let mask = match u32::from_ne_bytes(field(xt, 4)) {
                u32::MAX => String::new(),
                mask => format!("/{mask:#x}"),
            };
            format!("-m {name} {}--mark {mark:#x}{mask}", not(inverted != 0))
        }
        // The structure matches all ports, and has no flags.
        (name @ ("tcp" | "udp"), 0) if field(xt, 0) == [0, 0, 255, 255, 0, 0, 255, 255] && field(xt, 8) == [0; 4] => {
            format!("-m {name}")
        }
        (name, _) => format!("-m {name} [...]"),
    }
}

/// Formats a match of the socket's owner: user, group, or both.
fn owner(xt: &Xt) -> String {
    let [which, inverted] = field(xt, 16);
    let id = |bit: u8, at: usize, name: &str| {
        let (first, last) = (u32::from_ne_bytes(field(xt, at)), u32::from_ne_bytes(field(xt, at + 4)));
        let range = if first == last { first.to_string() } else { format!("{first}-{last}") };
        (which & bit != 0).then(|| format!(" {}--{name}-owner {range}", not(inverted & bit != 0)))
    };
    ["-m owner".to_owned()].into_iter().chain(id(1, 0, "uid")).chain(id(2, 8, "gid")).collect()
}

fn xt_target(xt: &Xt) -> String {
    let port_at = |at| u16::from_be_bytes(field(xt, at));
    match (&*xt.name, xt.revision, xt.bytes.len()) {
        ("REDIRECT", 0, 24) => format!("-j REDIRECT --to-ports {}", port_at(16)),
        ("REDIRECT", 0, 40) => format!("-j REDIRECT --to-ports {}", port_at(36)),
        ("MARK", 2, _) => {
            format!(
                "-j MARK --set-xmark {:#x}/{:#x}",
                u32::from_ne_bytes(field(xt, 0)),
                u32::from_ne_bytes(field(xt, 4))
            )
        }
        ("TPROXY", 1, _) => {
            let mark = (u32::from_ne_bytes(field(xt, 4)), u32::from_ne_bytes(field(xt, 0)));
            tproxy(port_at(24), Some(mark))
        }
        ("CONNMARK", 1 | 2, _) => connmark_target(xt),
        (name, ..) => format!("-j {name} [...]"),
    }
}

/// Formats `xt_connmark_tginfo1` or `xt_connmark_tginfo2`. The mode follows three 32-bit values, in revision 2 after
/// two bytes about a shift.
fn connmark_target(xt: &Xt) -> String {
    let [mode] = field(xt, if xt.revision == 2 { 14 } else { 12 });
    let (mark, mask) = (u32::from_ne_bytes(field(xt, 0)), u32::from_ne_bytes(field(xt, 4)));
    match mode {
        0 => format!("-j CONNMARK --set-xmark {mark:#x}/{mask:#x}"),
        1 => "-j CONNMARK --save-mark".to_owned(),
        2 => "-j CONNMARK --restore-mark".to_owned(),
        _ => "-j CONNMARK [...]".to_owned(),
    }
}

#[cfg(test)]
mod tests;
