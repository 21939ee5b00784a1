//! The node's sockets: answers the plugin with facts of this node's pods, and takes its log lines.
//!
//! ```text
//! API server ─ watch ─▶ Change ─▶ Store ─ Cache::lookup ─▶ Lookup ─ answer ─▶ agent.sock ─ pod::agent in the plugin
//! API server ─ token ─▶ Issued ─ install ─▶ kubeconfig ─ pod::api in the plugin
//! log.sock ─ relay ─▶ Record, Sample ─▶ the daemon's log, Metrics
//! ```
//!
//! `daemon` binds the [`Sockets`], [`serve`]s them and keeps the [`Cache`] by [`watch`]. Nothing here waits for the API
//! server before it answers, and a pod that nobody knows is "unknown", never "without a sidecar". An agent that ends asks its
//! successor on `agent.sock` where that one has installed the plugin.

mod answer;
mod cache;
mod metrics;
pub mod relay;
mod sockets;
pub mod token;
mod watch;

pub use answer::DIRECTORIES;
pub use cache::{Cache, Change, Lookup, Store};
pub use metrics::Metrics;
pub use sockets::{Names, Sockets, Sources, serve};
pub use watch::watch;
