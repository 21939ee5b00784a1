//! Istio's CNI node stack.
//!
//! ```text
//! ADD      env + stdin ─ cni ─▶ Call, NetConf ─ lookup ─▶ PodFacts ─ podfacts ─▶ Verdict ─ Redirect
//!                                                                        └─ Skip(reason)  │ desired
//!          prevResult, byte for byte ◀─ cni ◀── netfilter ◀── converge(netns) ◀── Desired ◀┘
//! install  directory events ─▶ Snapshot ─ install::plan ─▶ Plan{file operations} ─ apply ─▶ Snapshot … ready = the plan is empty
//! repair   pod events ─▶ broken? ─ decide ─▶ Evict | Delete | Label | Reprogram(converge) | Report | Nothing(reason)
//! inject   AdmissionReview or YAML ─ policy ─▶ Decision ─ template ─▶ overlay ─ merge ─▶ pod ─ patch ─▶ response
//! ```
//!
//! A module imports only crates and modules above it in this list. The plugin is built without the modules behind the feature
//! `daemons`.

pub use ::{cni, libcni, netfilter, netlink, redirect};
pub use ::contract;
pub use ::contract::diagnostics;
pub use ::podnet::{converge, netns, validate};
pub use ::redirect::{rules, trace};

pub mod ambient;

pub mod iptables;
pub mod plugin;

#[cfg(feature = "daemons")]
pub mod serve;

#[cfg(feature = "daemons")]
pub mod pods;

#[cfg(feature = "daemons")]
pub mod runtime_config;

#[cfg(feature = "daemons")]
pub mod install;

#[cfg(feature = "daemons")]
pub mod agent;

#[cfg(feature = "daemons")]
pub mod repair;

#[cfg(feature = "daemons")]
pub mod check;

#[cfg(feature = "daemons")]
pub mod daemon;

#[cfg(feature = "daemons")]
pub mod inject;

#[cfg(feature = "daemons")]
pub mod webhook;

#[cfg(feature = "daemons")]
pub mod cnictl;

#[cfg(all(test, feature = "daemons"))]
mod reference;
