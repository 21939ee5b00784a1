//! The admission server: HTTPS, certificates, watched configuration, the caBundle.
//!
//! The binary `sidecar-injector` starts this server. A [`Profile`] decides about each review; the modules that serve
//! requests do not depend on the kind of sidecar.

mod activity;
mod body;
mod bundle;
mod callers;
mod certificates;
mod cluster_state;
mod configuration;
pub mod dapr;
mod endpoint;
mod events;
mod files;
mod identity;
mod issue;
pub mod istio;
mod metrics;
mod page;
mod patch;
mod path;
mod present;
mod presentation;
mod program;
mod report;
mod review;
mod server;
mod store;
mod threads;
mod warnings;

pub mod flags;

use contract::diagnostics::LogScope;

pub use bundle::Selection;
pub use certificates::Certificates;
pub use cluster_state::{ClusterState, Native, is_native, watch as watch_cluster_state};
pub use configuration::{Build, ConfigFile, Source, Texts};
pub use endpoint::{Endpoint, Route};
pub use files::CertificateFiles;
pub use flags::WebhookFlags;
pub use identity::{Identity, bundle_ends};
pub use issue::{Issued, Lifetime};
pub use metrics::Metrics;
pub use path::variables;
pub use program::Program;
pub use report::StatusPage;
pub use review::{AdmissionOutcome, Profile, Review, Verdict};
pub use server::{Error, ServerSettings, run};
pub use store::CertificateStore;

/// The scope of this crate's log lines.
pub const LOG_SCOPE: LogScope = LogScope::new(module_path!(), "webhook");
