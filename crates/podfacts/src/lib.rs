//! The fields of a pod that determine its redirection ([`PodFacts`]), and the decision that follows from them ([`Verdict`]). Pure.
//!
//! `lookup` gets the fields from the node's agent or from the API server; the agent serves the paths of [`requests`].

mod extract;
mod facts;
pub mod name;
pub mod requests;
pub mod selector;
pub mod verdict;

pub use extract::{ANNOTATIONS, ApiPod, Error as ExtractError};
pub use facts::{PodFacts, PodName, ProxyContainer, RuntimeHandler, is_sandbox};
pub use verdict::{SkipReason, Verdict, of_pod, skipped};
