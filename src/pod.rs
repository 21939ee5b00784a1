//! What is known of a pod, and where it is learned: the agent's socket, else the API server.
//!
//! `plugin` calls [`lookup`]; `redirect` and `plugin` read the facts. Nothing here decides what a pod gets, and no
//! host name is ever resolved: static binaries would load the host's NSS modules for that.

pub mod agent;
pub mod api;
mod deadline;
mod extract;
mod facts;
pub mod http;
pub mod kubeconfig;
pub mod lookup;
#[cfg(feature = "daemons")]
pub mod watched;

pub use extract::{ApiPod, Error as ExtractError};
pub use facts::{PodFacts, PodName, ProxyContainer};
