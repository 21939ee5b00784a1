//! The nf_tables expressions of a rule.
//!
//! The encoders create them, `wire` decodes them from a dump, `diff` compares them. Only register 1 is modelled, because
//! iptables and nft use no other register for our rules; an expression with another register is [`Expr::Other`], which
//! equals none of ours. Numbers are from `linux/netfilter/nf_tables.h`.

use std::borrow::Cow;
use std::fmt;

use ruleset::{Family, Port};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expr {
    Meta(Meta),
    SetMeta(Meta),
    /// Compares the register.
    Cmp(Op, Value),
    /// Loads bytes of the packet.
    Payload {
        /// The header at which `offset` starts.
        base: Base,
        offset: u8,
        length: u8,
    },
    /// Applies a mask to the register.
    Mask(Value),
    /// Applies a mask to the register, then an exclusive or of at least one bit.
    MaskXor(Value, Value),
    /// Loads a constant.
    Load(Value),
    Ct(Ct),
    SetCt(Ct),
    /// Looks the register up in a set of ports.
    Lookup {
        set: Set,
        negated: bool,
    },
    /// Counts packets; the counts are ignored.
    Counter,
    Verdict(Verdict),
    /// Redirects to the port in the register.
    Redirect,
    /// Assigns the packet to the transparent socket that listens on the port in the register.
    Tproxy(Family),
    Match(Xt),
    Target(Xt),
    /// An expression that our rules do not use.
    Other {
        name: String,
        /// The attributes as the kernel sent them.
        body: Box<[u8]>,
    },
}

/// A packet property (`nft_meta_keys`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Meta {
    Mark = 3,
    InInterface = 6,
    OutInterface = 7,
    Uid = 10,
    Gid = 11,
    Family = 15,
    Protocol = 16,
}

/// A connection property (`nft_ct_keys`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Ct {
    State = 0,
    Mark = 3,
    Zone = 17,
}

/// A packet header (`nft_payload_bases`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Base {
    /// IPv4 or IPv6.
    Network = 1,
    /// TCP or UDP.
    Transport = 2,
}

/// A comparison (`nft_cmp_ops`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Op {
    Equal = 0,
    Unequal = 1,
}

macro_rules! from_number {
    ($name:ident: $($variant:ident),+) => {
        impl $name {
            /// Returns the kernel's number.
            pub(super) fn number(self) -> u32 {
                self as u32
            }

            /// Returns the value with this number, if our rules use it.
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

impl From<Meta> for Expr {
    fn from(key: Meta) -> Self {
        Self::Meta(key)
    }
}

impl From<Ct> for Expr {
    fn from(key: Ct) -> Self {
        Self::Ct(key)
    }
}

/// A constant of 1 to 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Value {
    bytes: [u8; 16],
    length: u8,
}

impl Value {
    /// Creates a constant; returns none for more than 16 bytes.
    pub(super) fn new(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; 16];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Self { bytes, length: u8::try_from(from.len()).ok()? })
    }

    pub(super) fn u8(value: u8) -> Self {
        Self::array([value])
    }

    /// Encodes a port in network byte order.
    pub(super) fn port(port: Port) -> Self {
        Self::array(port.0.to_be_bytes())
    }

    /// Encodes a mark or id in host byte order.
    pub(super) fn u32(value: u32) -> Self {
        Self::array(value.to_ne_bytes())
    }

    /// Encodes a zone in host byte order.
    pub(super) fn u16(value: u16) -> Self {
        Self::array(value.to_ne_bytes())
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }

    /// Returns the first `length` bytes, or the whole constant if it is shorter.
    pub(super) fn prefix(self, length: u8) -> Self {
        let length = length.min(self.length);
        let mut bytes = self.bytes;
        bytes.iter_mut().skip(usize::from(length)).for_each(|byte| *byte = 0);
        Self { bytes, length }
    }

    /// Returns a constant of the same length with only zero bytes.
    pub(super) fn zeroed(self) -> Self {
        Self { bytes: [0; 16], length: self.length }
    }

    /// Returns the number of bytes.
    pub(super) fn length(self) -> u8 {
        self.length
    }

    pub(super) fn array<const N: usize>(from: [u8; N]) -> Self {
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
    /// `NFT_GOTO`
    Goto(Cow<'static, str>),
}

/// The set of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Set {
    /// An anonymous set of these ports.
    Ports(Vec<Port>),
    Named(String),
}

/// An iptables extension: name, revision and C structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Xt {
    pub(super) name: Cow<'static, str>,
    /// The structure's revision.
    pub(super) revision: u32,
    /// The structure, padded as in the kernel.
    pub(super) bytes: Box<[u8]>,
}

impl Expr {
    /// Whether the kernel needs an iptables extension to load this expression.
    pub(super) fn is_xt(&self) -> bool {
        matches!(self, Self::Match(_) | Self::Target(_))
    }

    /// Returns the chain that the expression jumps or goes to.
    pub(super) fn jumps_to(&self) -> Option<&str> {
        match self {
            Self::Verdict(Verdict::Jump(chain) | Verdict::Goto(chain)) => Some(chain),
            _ => None,
        }
    }
}
