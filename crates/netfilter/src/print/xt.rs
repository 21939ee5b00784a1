//! Formats iptables' extensions, whose structures are those of `linux/netfilter/xt_*.h`.

use super::super::expr::Xt;
use super::super::uapi::NF_NAT_RANGE_PROTO_SPECIFIED;
use super::{not, states, tproxy};

/// Reads a field of an extension's structure.
fn field<const N: usize>(xt: &Xt, at: usize) -> [u8; N] {
    xt.bytes.get(at..at + N).and_then(|b| b.try_into().ok()).unwrap_or([0; N])
}

/// Formats a match of iptables; for its structure see `xt.rs` of the crate.
pub(super) fn extension_match(xt: &Xt) -> String {
    match (&*xt.name, xt.revision) {
        ("owner", 1) => owner(xt),
        ("multiport", 1) => {
            let [flags, count] = field(xt, 0);
            let which = ["sports", "dports", "ports"].get(usize::from(flags)).unwrap_or(&"ports");
            let [inverted] = field(xt, 47);
            format!("-m multiport {}--{which} {}", not(inverted != 0), multiport(xt, count))
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
        ("tcp", 0) => tcp(xt),
        ("udp", 0) => {
            let [inverted] = field(xt, 8);
            ["-m udp".to_owned()].into_iter().chain(port_ranges(xt, inverted)).collect()
        }
        (name, _) => format!("-m {name} [...]"),
    }
}

/// Formats the ports of `xt_multiport_v1`. A port whose flag at offset 32 is set starts a range, which ends at the next port.
fn multiport(xt: &Xt, count: u8) -> String {
    let ports = (0..usize::from(count).min(15)).map(|i| {
        let [starts_range] = field(xt, 32 + i);
        format!("{}{}", u16::from_ne_bytes(field(xt, 2 + 2 * i)), if starts_range == 0 { "," } else { ":" })
    });
    ports.collect::<String>().trim_end_matches([',', ':']).to_owned()
}

/// Formats `xt_tcp`: ranges of ports, an option, and flags with their mask.
fn tcp(xt: &Xt) -> String {
    let [option, mask, flags, inverted] = field(xt, 8);
    let option = (option != 0).then(|| format!(" {}--tcp-option {option}", not(inverted & 8 != 0)));
    let flags = (mask != 0 || inverted & 4 != 0)
        .then(|| format!(" {}--tcp-flags {} {}", not(inverted & 4 != 0), tcp_flags(mask), tcp_flags(flags)));
    ["-m tcp".to_owned()].into_iter().chain(port_ranges(xt, inverted)).chain(option).chain(flags).collect()
}

/// Formats the bits of a TCP header's flags.
fn tcp_flags(bits: u8) -> String {
    let names = [(1, "FIN"), (2, "SYN"), (4, "RST"), (8, "PSH"), (16, "ACK"), (32, "URG")];
    let set: Vec<_> = names.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    if set.is_empty() { "NONE".to_owned() } else { set.join(",") }
}

/// Formats the ranges of source and destination ports with which `xt_tcp` and `xt_udp` start; bits 0 and 1 of `inverted`
/// negate them.
fn port_ranges(xt: &Xt, inverted: u8) -> impl Iterator<Item = String> {
    let range = move |bit: u8, at: usize, name: &str| {
        let (first, last) = (u16::from_ne_bytes(field(xt, at)), u16::from_ne_bytes(field(xt, at + 2)));
        let ports = if first == last { first.to_string() } else { format!("{first}:{last}") };
        let is_inverted = inverted & bit != 0;
        ((first, last) != (0, u16::MAX) || is_inverted).then(|| format!(" {}--{name} {ports}", not(is_inverted)))
    };
    range(1, 0, "sport").into_iter().chain(range(2, 4, "dport"))
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

/// Formats a target of iptables; for its structure see `xt.rs` of the crate.
pub(super) fn extension_target(xt: &Xt) -> String {
    let port_at = |at| u16::from_be_bytes(field(xt, at));
    match (&*xt.name, xt.revision, xt.bytes.len()) {
        ("REDIRECT", 0, 24) => redirect(u32::from_ne_bytes(field(xt, 4)), [port_at(16), port_at(18)]),
        ("REDIRECT", 0, 40) => redirect(u32::from_ne_bytes(field(xt, 0)), [port_at(36), port_at(38)]),
        ("MARK", 2, _) => {
            format!(
                "-j MARK --set-xmark {:#x}/{:#x}",
                u32::from_ne_bytes(field(xt, 0)),
                u32::from_ne_bytes(field(xt, 4))
            )
        }
        ("TPROXY", 1, _) => {
            let mark = (u32::from_ne_bytes(field(xt, 4)), u32::from_ne_bytes(field(xt, 0)));
            tproxy(port_at(24), mark)
        }
        ("CONNMARK", 1 | 2, _) => connmark_target(xt),
        ("CT", 1 | 2, _) => ct_target(xt),
        (name, ..) => format!("-j {name} [...]"),
    }
}

/// Formats REDIRECT with its range of ports; `flags` are those of `linux/netfilter/nf_nat.h`.
fn redirect(flags: u32, [first, last]: [u16; 2]) -> String {
    match flags {
        0 => "-j REDIRECT".to_owned(),
        NF_NAT_RANGE_PROTO_SPECIFIED if first == last => format!("-j REDIRECT --to-ports {first}"),
        NF_NAT_RANGE_PROTO_SPECIFIED => format!("-j REDIRECT --to-ports {first}-{last}"),
        _ => "-j REDIRECT [...]".to_owned(),
    }
}

/// Formats `xt_ct_target_info_v1`: flags, a zone, masks of events, and the names of a helper and of a timeout policy.
fn ct_target(xt: &Xt) -> String {
    const XT_CT_NOTRACK: u16 = 1 << 0;
    const XT_CT_NOTRACK_ALIAS: u16 = 1 << 1;
    let [flags, zone] = [0, 2].map(|at| u16::from_ne_bytes(field(xt, at)));
    let has_others = xt.bytes.get(4..60).is_none_or(|others| others.iter().any(|byte| *byte != 0));
    match flags {
        _ if has_others => "-j CT [...]".to_owned(),
        0 if zone == 0 => "-j CT".to_owned(),
        0 => format!("-j CT --zone {zone}"),
        _ if flags & !XT_CT_NOTRACK_ALIAS == XT_CT_NOTRACK && zone == 0 => "-j CT --notrack".to_owned(),
        _ => "-j CT [...]".to_owned(),
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
