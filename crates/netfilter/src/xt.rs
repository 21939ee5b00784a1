//! The C structures of iptables extensions as iptables 1.8.9 fills them on 64-bit machines.
//!
//! Layouts: `linux/netfilter/xt_*.h`; each is padded to a multiple of eight bytes, as in the kernel's dumps.

use std::borrow::Cow;

use ruleset::{CtStates, Family, Port, Proto};

use super::Unencodable;
use super::expr::{Expr, Xt};

/// The owner of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Id {
    User(u32),
    Group(u32),
}

/// `xt_owner_match_info`, revision 1.
pub(super) fn owner(id: Id, negated: bool) -> Expr {
    /// `XT_OWNER_UID`, `XT_OWNER_GID`
    const UID: u8 = 1;
    const GID: u8 = 2;
    let (start, id, which) = match id {
        Id::User(id) => (0, id, UID),
        Id::Group(id) => (8, id, GID),
    };
    let mut bytes = [0; 24];
    put(&mut bytes, start, &id.to_ne_bytes());
    put(&mut bytes, start + 4, &id.to_ne_bytes());
    put(&mut bytes, 16, &[which, if negated { which } else { 0 }]);
    Expr::Match(xt("owner", 1, &bytes))
}

/// `xt_tcp` or `xt_udp` that matches all source and all destination ports, which are two ranges at the start of the
/// structure.
pub(super) fn any_ports(proto: Proto) -> Expr {
    let mut bytes = [0; 16];
    put(&mut bytes, 2, &u16::MAX.to_ne_bytes());
    put(&mut bytes, 6, &u16::MAX.to_ne_bytes());
    Expr::Match(xt(proto.as_str(), 0, &bytes))
}

/// `xt_multiport_v1`: none of these destination ports.
pub(super) fn not_ports(ports: &[Port]) -> Result<Expr, Unencodable> {
    /// `XT_MULTI_PORTS`
    const LIMIT: u8 = 15;
    /// `XT_MULTIPORT_DESTINATION`
    const DESTINATION: u8 = 1;
    let mut bytes = [0; 48];
    let count = u8::try_from(ports.len()).ok().filter(|count| *count <= LIMIT);
    let count = count.ok_or(Unencodable::Ports { given: ports.len(), limit: usize::from(LIMIT) })?;
    put(&mut bytes, 0, &[DESTINATION, count]);
    for (i, port) in ports.iter().enumerate() {
        put(&mut bytes, 2 + 2 * i, &port.0.to_ne_bytes());
    }
    put(&mut bytes, 47, &[1]);
    Ok(Expr::Match(xt("multiport", 1, &bytes)))
}

/// `xt_conntrack_mtinfo3`
pub(super) fn ct_state(states: CtStates) -> Expr {
    /// `XT_CONNTRACK_STATE`
    const STATE: u16 = 1;
    let mask: u16 = match states {
        CtStates::Invalid => 1,
        CtStates::RelatedEstablished => 2 | 4,
    };
    let mut bytes = [0; 168];
    put(&mut bytes, 146, &STATE.to_ne_bytes());
    put(&mut bytes, 150, &mask.to_ne_bytes());
    Expr::Match(xt("conntrack", 3, &bytes))
}

/// `xt_connmark_mtinfo1`
pub(super) fn connmark(mark: u32, mask: u32, negated: bool) -> Expr {
    let mut bytes = [0; 16];
    put(&mut bytes, 0, &mark.to_ne_bytes());
    put(&mut bytes, 4, &mask.to_ne_bytes());
    put(&mut bytes, 8, &[u8::from(negated)]);
    Expr::Match(xt("connmark", 1, &bytes))
}

/// `xt_mark_tginfo2`
pub(super) fn set_mark(mark: u32, mask: u32) -> Expr {
    let mut bytes = [0; 8];
    put(&mut bytes, 0, &mark.to_ne_bytes());
    put(&mut bytes, 4, &mask.to_ne_bytes());
    Expr::Target(xt("MARK", 2, &bytes))
}

/// Replaces the bits of the connection's mark that are in the mask (`XT_CONNMARK_SET`).
pub(super) fn set_connmark(mark: u32, mask: u32) -> Expr {
    connmark_target(mark, mask, 0)
}

/// Saves the packet's mark in its connection (`XT_CONNMARK_SAVE`).
pub(super) fn save_mark() -> Expr {
    connmark_target(0, u32::MAX, 1)
}

/// Sets the packet's mark to its connection's (`XT_CONNMARK_RESTORE`).
pub(super) fn restore_mark() -> Expr {
    connmark_target(0, u32::MAX, 2)
}

/// `xt_connmark_tginfo2`
fn connmark_target(mark: u32, mask: u32, mode: u8) -> Expr {
    let mut bytes = [0; 16];
    put(&mut bytes, 0, &mark.to_ne_bytes());
    put(&mut bytes, 4, &mask.to_ne_bytes());
    put(&mut bytes, 8, &u32::MAX.to_ne_bytes());
    put(&mut bytes, 14, &[mode]);
    Expr::Target(xt("CONNMARK", 2, &bytes))
}

/// `xt_tproxy_target_info_v1`
pub(super) fn tproxy(port: Port, mark: u32, mask: u32) -> Expr {
    let mut bytes = [0; 32];
    put(&mut bytes, 0, &mask.to_ne_bytes());
    put(&mut bytes, 4, &mark.to_ne_bytes());
    put(&mut bytes, 24, &port.0.to_be_bytes());
    Expr::Target(xt("TPROXY", 1, &bytes))
}

/// `nf_nat_ipv4_multi_range_compat`, for IPv6 `nf_nat_range`.
pub(super) fn redirect(port: Port, family: Family) -> Expr {
    /// `NF_NAT_RANGE_PROTO_SPECIFIED`
    const PORT_GIVEN: u32 = 2;
    let port = port.0.to_be_bytes();
    match family {
        Family::V4 => {
            let mut bytes = [0; 24];
            put(&mut bytes, 0, &1_u32.to_ne_bytes());
            put(&mut bytes, 4, &PORT_GIVEN.to_ne_bytes());
            put(&mut bytes, 16, &port);
            put(&mut bytes, 18, &port);
            Expr::Target(xt("REDIRECT", 0, &bytes))
        }
        Family::V6 => {
            let mut bytes = [0; 40];
            put(&mut bytes, 0, &PORT_GIVEN.to_ne_bytes());
            put(&mut bytes, 36, &port);
            put(&mut bytes, 38, &port);
            Expr::Target(xt("REDIRECT", 0, &bytes))
        }
    }
}

/// `xt_ct_target_info_v1`, revision 2.
pub(super) fn ct_zone(zone: u16) -> Expr {
    let mut bytes = [0; 72];
    put(&mut bytes, 2, &zone.to_ne_bytes());
    Expr::Target(xt("CT", 2, &bytes))
}

fn xt(name: &'static str, revision: u32, bytes: &[u8]) -> Xt {
    Xt { name: Cow::Borrowed(name), revision, bytes: bytes.into() }
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(field) = bytes.get_mut(at..at + value.len()) {
        field.copy_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multiport_match_holds_fifteen_ports_and_refuses_more() {
        let ports: Vec<Port> = (1..=16).map(Port).collect();
        let Ok(Expr::Match(full)) = not_ports(&ports[..15]) else { panic!("fifteen ports are refused") };
        assert_eq!((full.bytes[1], &full.bytes[30..32]), (15, &15_u16.to_ne_bytes()[..]));
        assert_eq!(not_ports(&ports), Err(Unencodable::Ports { given: 16, limit: 15 }));
    }
}
