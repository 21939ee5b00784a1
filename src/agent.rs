//! The agent's sockets: serves the fields of this node's pods on which redirection depends (`PodFacts`) to the plugin,
//! and receives the plugin's log lines.
//!
//! ```text
//! API server ─ watch ─▶ Change ─▶ Store ─ Cache::lookup ─▶ Lookup ─ response ─▶ agent.sock ─ lookup::agent in the plugin
//! API server ─ token ─▶ Issued ─ install ─▶ kubeconfig ─ lookup::api in the plugin
//! log.sock ─ relay ─▶ Record, Sample ─▶ the daemon's log, Metrics, Verdicts, Events
//! API server ─ watch ─▶ RuntimeClasses, and the runtime's configuration ─▶ Handlers ─▶ response
//! ```
//!
//! `daemon` binds the [`Sockets`], serves them with [`serve()`] and updates the [`Cache`] with [`watch`]. No response waits for the
//! API server, and a pod that is not in the cache is "unknown", never "without a sidecar". An agent that shuts down requests the
//! directories of its successor's installation on `agent.sock`; one that stands by waits there for an offer ([`Handover`]).

mod cache;
pub mod events;
pub mod handlers;
mod handover;
mod metrics;
pub mod relay;
mod response;
mod sockets;
pub mod token;
mod verdicts;
mod watch;

use contract::diagnostics::LogScope;
use serve::log::AGENT_SCOPE;

pub use cache::{Cache, Change, Lookup, Store};
pub use handlers::Handlers;
pub use handover::{Abandoned, Handover, until_abandoned};
pub use metrics::Metrics;
pub use relay::Sample;
pub use response::Sources;
pub use sockets::{Names, Sockets, serve};
pub use verdicts::{Added, NoBackend, Problem, Verdicts};
pub use watch::watch;

/// The scope of the agent's log lines.
pub const LOG_SCOPE: LogScope = LogScope::new(module_path!(), AGENT_SCOPE);
