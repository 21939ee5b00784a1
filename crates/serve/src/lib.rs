//! Shared parts of the daemons: health, metrics, logs, listeners, the API server's client and shutdown.
//!
//! The daemons' modules and binaries call it. It has no code specific to nodes or meshes.

mod body;
mod buffer;
pub mod cluster;
pub mod event;
pub mod health;
pub mod http;
mod limits;
pub mod listen;
pub mod log;
mod memory;
mod message;
pub mod metrics;
pub mod page;
pub mod pods;
pub mod recent;
pub mod resource;
pub mod scheduling;
pub mod shutdown;
pub mod signals;
pub mod tasks;
pub mod tls;
pub mod watch;

use contract::diagnostics::LogScope;

/// The scope of log lines: that of the node agent.
pub const LOG_SCOPE: LogScope = LogScope::new(module_path!(), log::AGENT_SCOPE);
