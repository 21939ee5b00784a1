//! Looks up the fields of a pod that determine its redirection ([`PodFacts`]): from the agent's socket, else from the
//! API server.
//!
//! `plugin` calls [`lookup`]; `redirect` and `plugin` read the [`PodFacts`]. This module makes no decision about the
//! pod. It never resolves a host name: a static binary would load the host's NSS modules for that.

pub mod agent;
pub mod api;
mod deadline;
mod extract;
mod facts;
pub mod http;
pub mod kubeconfig;
pub mod lookup;
pub(crate) mod name;
pub mod selector;
#[cfg(feature = "daemons")]
pub mod watch;

#[cfg(all(test, feature = "daemons"))]
pub(crate) use extract::ANNOTATIONS;
pub use extract::{ApiPod, Error as ExtractError};
pub use facts::{PodFacts, PodName, ProxyContainer, RuntimeHandler, is_sandbox};
