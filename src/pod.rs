//! What is known of a pod, and where it is learned: the agent's socket, else the API server.
//!
//! `plugin` asks; `redirect` and `plugin` read the facts. Nothing here decides what a pod gets.

mod facts;

pub use facts::{PodFacts, PodName, ProxyContainer};
