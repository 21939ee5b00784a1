//! nf_tables expressions as values: what one rule of the kernel consists of.
//!
//! The encoders make them, `live` reads them back from a dump, `diff` compares the two. Only register 1 is modelled,
//! which is all that iptables and Istio's rules use; an expression of any other shape is [`Expr::Other`], equal to
//! none of ours. Numbers are those of `linux/netfilter/nf_tables.h`.

use std::borrow::Cow;
use std::fmt;

use crate::redirect::Port;
use crate::rules::Family;

/// One expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expr {
    /// Load a property of the packet.
    Meta(Meta),
    /// Set a property of the packet.
    SetMeta(Meta),
    /// Compare what is loaded.
    Cmp(Op, Value),
    /// Load bytes of the packet.
    Payload {
        /// Header from which `offset` counts.
        base: Base,
        /// First byte.
        offset: u8,
        /// Bytes.
        length: u8,
    },
    /// Keep these bits of what is loaded.
    Mask(Value),
    /// Load a constant.
    Load(Value),
    /// Load a property of the connection.
    Ct(Ct),
    /// Set a property of the connection.
    SetCt(Ct),
    /// Look for what is loaded in a set of ports.
    Lookup {
        /// Where.
        set: Set,
        /// Match what is not in it.
        negated: bool,
    },
    /// Count packets; the counts themselves are none of our business.
    Counter,
    /// Decide.
    Verdict(Verdict),
    /// Redirect to the port that is loaded.
    Redirect,
    /// Hand to the transparent listener on the port that is loaded.
    Tproxy(Family),
    /// A match of iptables.
    Match(Xt),
    /// A target of iptables.
    Target(Xt),
    /// Something that Istio's rules do not contain.
    Other {
        /// The expression's name.
        name: String,
        /// Its attributes, as the kernel sent them.
        body: Box<[u8]>,
    },
}

/// Properties of a packet (`nft_meta_keys`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Meta {
    /// Packet mark.
    Mark = 3,
    /// Name of the interface by which it came.
    InInterface = 6,
    /// Name of the interface by which it goes.
    OutInterface = 7,
    /// User of the socket.
    Uid = 10,
    /// Group of the socket.
    Gid = 11,
    /// Address family.
    Family = 15,
    /// Transport protocol.
    Protocol = 16,
}

/// Properties of a connection (`nft_ct_keys`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Ct {
    /// State bits.
    State = 0,
    /// Connection mark.
    Mark = 3,
    /// Zone.
    Zone = 17,
}

/// Headers of a packet (`nft_payload_bases`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Base {
    /// IPv4 or IPv6.
    Network = 1,
    /// TCP or UDP.
    Transport = 2,
}

/// Comparisons (`nft_cmp_ops`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Op {
    /// Equal.
    Equal = 0,
    /// Not equal.
    Unequal = 1,
}

macro_rules! from_number {
    ($name:ident: $($variant:ident),+) => {
        impl $name {
            /// The number that the kernel gives it.
            pub(super) fn number(self) -> u32 {
                self as u32
            }

            /// What the kernel calls by this number, if Istio's rules use it.
            pub(super) fn from_number(number: u32) -> Option<Self> {
                [$(Self::$variant),+].into_iter().find(|v| v.number() == number)
            }
        }
    };
}

from_number!(Meta: Mark, InInterface, OutInterface, Uid, Gid, Family, Protocol);
from_number!(Ct: State, Mark, Zone);
from_number!(Base: Network, Transport);
from_number!(Op: Equal, Unequal);

/// A constant of 1 to 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Value {
    bytes: [u8; 16],
    length: u8,
}

impl Value {
    /// These bytes; more than 16 are no constant of ours.
    pub(super) fn new(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; 16];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Self { bytes, length: u8::try_from(from.len()).ok()? })
    }

    /// A byte.
    pub(super) const fn u8(value: u8) -> Self {
        let mut bytes = [0; 16];
        bytes[0] = value;
        Self { bytes, length: 1 }
    }

    /// A port, in network order.
    pub(super) fn port(port: Port) -> Self {
        Self::array(port.0.to_be_bytes())
    }

    /// A number in the host's order: marks, ids, zones.
    pub(super) fn u32(value: u32) -> Self {
        Self::array(value.to_ne_bytes())
    }

    /// A number in the host's order: zones.
    pub(super) fn u16(value: u16) -> Self {
        Self::array(value.to_ne_bytes())
    }

    /// The bytes.
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }

    fn array<const N: usize>(from: [u8; N]) -> Self {
        const { assert!(N <= 16) };
        let mut bytes = [0; 16];
        for (to, byte) in bytes.iter_mut().zip(from) {
            *to = byte;
        }
        Self { bytes, length: N as u8 }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.as_bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// What becomes of the packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// `NF_DROP`
    Drop,
    /// `NF_ACCEPT`
    Accept,
    /// `NFT_RETURN`
    Return,
    /// `NFT_JUMP`
    Jump(Cow<'static, str>),
}

/// Where a lookup looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Set {
    /// A set of its own, with these ports.
    Ports(Vec<Port>),
    /// A set of this name.
    Named(String),
}

/// An extension of iptables: name, revision and its C structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Xt {
    /// Name.
    pub(super) name: Cow<'static, str>,
    /// Revision of the structure.
    pub(super) revision: u32,
    /// The structure, padded as the kernel pads it.
    pub(super) bytes: Box<[u8]>,
}

impl Expr {
    /// An extension of iptables is needed to load it.
    pub(super) fn is_xt(&self) -> bool {
        matches!(self, Self::Match(_) | Self::Target(_))
    }

    /// The chain to which it sends packets on.
    pub(super) fn jumps_to(&self) -> Option<&str> {
        match self {
            Self::Verdict(Verdict::Jump(chain)) => Some(chain),
            _ => None,
        }
    }
}
