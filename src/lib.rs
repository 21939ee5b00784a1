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
//! Modules do not import each other in circles.

pub mod ambient;

pub mod runtime_config;

pub mod install;

pub mod agent;

pub mod in_place;

pub mod check;

pub mod daemon;
