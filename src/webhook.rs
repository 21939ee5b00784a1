//! The admission server: HTTPS, certificates, configuration that is watched, the caBundle.
//!
//! The binary `sidecar-injector` starts it. What is injected, a [`Profile`] decides; nothing here knows what a sidecar is.

mod answer;
mod body;
mod bundle;
mod callers;
mod configuration;
pub mod dapr;
mod events;
mod files;
mod identity;
mod issue;
pub mod istio;
mod keep;
mod metrics;
mod path;
mod present;
mod presentation;
mod program;
mod review;
mod run;
mod store;
mod surroundings;
mod threads;
mod warnings;

pub mod flags;

pub use answer::{Endpoint, Route};
pub use bundle::Selection;
pub use configuration::{Build, Source, Texts};
pub use files::CertificateFiles;
pub use flags::Flags;
pub use identity::Identity;
pub use issue::{Issued, Lifetime};
pub use keep::Certificates;
pub use metrics::Metrics;
pub use path::variables;
pub use program::Program;
pub use review::{AdmissionOutcome, Profile, Review, Verdict};
pub use run::{Error, Settings, run};
pub use store::Place;
pub use surroundings::{Native, Surroundings, is_native, keep as keep_surroundings};
