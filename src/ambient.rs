//! Istio's ambient mode, in which the node's ztunnel serves pods that have no sidecar.
//!
//! [`enablement`] decides which pods are enrolled, and `zds` sends their netns to ztunnel. No program of this project
//! uses these modules.

pub mod enablement;
pub mod zds;

use contract::diagnostics::LogScope;

/// The scope of this module's log lines.
pub const LOG_SCOPE: LogScope = LogScope::new(module_path!(), "ambient");
