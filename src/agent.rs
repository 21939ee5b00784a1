//! The agent's sockets: serves facts of this node's pods to the plugin, and receives the plugin's log lines.
//!
//! ```text
//! API server ─ watch ─▶ Change ─▶ Store ─ Cache::lookup ─▶ Lookup ─ answer ─▶ agent.sock ─ pod::agent in the plugin
//! API server ─ token ─▶ Issued ─ install ─▶ kubeconfig ─ pod::api in the plugin
//! log.sock ─ relay ─▶ Record, Sample ─▶ the daemon's log, Metrics
//! ```
//!
//! `daemon` binds the [`Sockets`], [`serve`]s them and updates the [`Cache`] by [`watch`]. No answer waits for the API server,
//! and a pod that is not in the cache is "unknown", never "without a sidecar". An agent that shuts down requests the
//! directories of its successor's installation on `agent.sock`.

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
