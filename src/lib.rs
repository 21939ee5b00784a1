//! Istio's CNI node stack.
//!
//! ```text
//! ADD      env + stdin ─ cni ─▶ Call, NetConf ─ pod ─▶ PodFacts ─ plugin ─▶ Verdict ─ redirect ─▶ Redirect
//!                                                                     └─ Skip(reason)      │ rules
//!          prevResult, byte for byte ◀─ cni ◀── converge(netns) ◀── netfilter ◀── RuleSet ◀┘
//! install  directory events ─▶ Snapshot ─ install::plan ─▶ Plan{file operations} ─ apply ─▶ Snapshot … ready = the plan is empty
//! repair   pod events ─▶ broken? ─ decide ─▶ Evict | Delete | Label | Reprogram(converge) | Nothing(reason)
//! inject   AdmissionReview or YAML ─ policy ─▶ Decision ─ template ─▶ overlay ─ merge ─▶ pod ─ patch ─▶ response
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

pub mod serve;

pub mod install;

pub mod agent;
pub mod repair;

pub mod daemon;

pub mod inject;
pub mod webhook;

pub mod cnictl;
