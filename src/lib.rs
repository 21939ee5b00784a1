//! Istio's CNI node stack.
//!
//! ```text
//! ADD      env + stdin ─ cni ─▶ Call, NetConf ─ pod ─▶ PodFacts ─ plugin ─▶ Verdict ─ redirect ─▶ Redirect
//!                                                                     └─ Skip(reason)      │ rules
//!          prevResult, byte for byte ◀─ cni ◀── converge(netns) ◀── netfilter ◀── RuleSet ◀┘
//! ```
//!
//! A room knows only the rooms above it in this list.

pub mod contract;

pub mod cni;
pub mod pod;
pub mod redirect;
pub mod rules;

pub mod netlink;

pub mod netfilter;
pub mod netns;

pub mod converge;
pub mod validate;

pub mod iptables;
pub mod plugin;
