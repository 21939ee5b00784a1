//! What every daemon shares: health, metrics, logs, listeners, and the wish to end.
//!
//! The daemons' rooms and binaries call it. It knows nothing of pods, nodes or meshes.

pub mod shutdown;
