//! What every daemon shares: health, metrics, logs, listeners, the API server's client, and the wish to end.
//!
//! The daemons' rooms and binaries call it. It knows nothing of pods, nodes or meshes.

mod body;
pub mod cluster;
pub mod health;
pub mod http;
pub mod listen;
pub mod log;
mod memory;
pub mod metrics;
pub mod shutdown;
pub mod signals;
pub mod tls;
pub mod watch;
