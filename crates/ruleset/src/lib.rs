//! A pod's rules as data, and formatted for iptables and nft.
//!
//! `redirect` builds a [`RuleSet`]; `netfilter` encodes it and compares it with the kernel's rules. Pure: no rule is read or
//! programmed here. Order and text are exactly Istio's.

mod addresses;
mod chain;
mod chains;
mod desired;
mod interface;
pub mod nft;
mod owner;
mod port;
mod probe;
pub mod restore;
mod rule;
#[cfg(test)]
mod sample;

pub use addresses::{fmt_addr, fmt_net};
pub use chain::{Chain, Hook, Layout, NativeTable, OwnChain, Owned, ProtocolText, Spelling, Table};
pub use chains::Chains;
pub use desired::{Desired, DesiredRoutes, DesiredRules, Ipv6, MarkRoute, Routes};
pub use interface::Interface;
pub use owner::Owner;
pub use port::Port;
pub use probe::Probe;
pub use rule::{At, CtStates, Families, Family, Match, Proto, Rule, RuleSet, Target};
