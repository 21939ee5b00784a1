//! The workload discovery of ztunnel (ZDS): hands the netns of enrolled pods to the node's ztunnels.
//!
//! ```text
//! Ztunnels::add, delete ─▶ State ─┬─ Registry ─▶ snapshot ─┬─▶ Session ─▶ Request ──▶ Packets ─▶ ztunnel
//!                                 └─ the newest, or all ───┘      │                      │
//! Ok, Error ◀───────────────────────────────────────── Answered ◀─┴───── Response ◀──────┘
//! ```
//!
//! ztunnel connects to a Unix socket of sequenced packets, one protobuf message each, and acknowledges each request. It
//! starts a proxy in the netns of each pod that a request adds, and drains the proxies of pods that a snapshot does not
//! name.

mod connection;
pub mod message;
mod metrics;
pub mod packet;
mod pod_netns;
pub mod registry;
mod server;
pub mod session;
pub mod state;
mod ztunnels;

pub use metrics::Metrics;
pub use pod_netns::PodNetns;
pub use registry::Enrolled;
pub use server::serve;
pub use ztunnels::{Error, Limits, Ztunnels};
