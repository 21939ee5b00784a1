//! Parts that the daemons share, such as health, metrics, logs, listeners, API clients and shutdown.
//!
//! The daemons and `istio-cnictl` call it. It has no code specific to nodes or meshes.

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

/// The scope of this crate's log lines, which is the node agent's.
pub const LOG_SCOPE: LogScope = LogScope::new(module_path!(), log::AGENT_SCOPE);
