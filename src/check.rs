//! Checks whether a node is ready for redirection. Each check gives a [`Finding`]: right, or a warning or a failure
//! with its remedy.
//!
//! ```text
//! node's directories, kernel ─ gather ─▶ NodeFacts ─ decide ─▶ Report
//! ```
//!
//! `daemon` checks its node. `cnictl` builds a [`Report`] of a cluster. Only `gather` and `kernel` have effects: they
//! read the node, and program rules in network namespaces that they create.

mod gather;
pub mod kernel;
mod networks;
pub mod node;
mod report;

pub use gather::gather;
pub use node::NodeFacts;
pub use report::Report;

/// The pages of the documentation that a finding refers to, with the anchor of the section.
pub mod page {
    pub const KERNEL: &str = "docs/troubleshooting.md#the-kernel";
    pub const RUNTIME: &str = "docs/troubleshooting.md#the-container-runtimes-directories";
    pub const CHAIN: &str = "docs/troubleshooting.md#the-chain-of-plugins";
    pub const CONFLICTS: &str = "docs/troubleshooting.md#other-plugins";
    pub const SECURITY: &str = "docs/troubleshooting.md#selinux-and-podsecurity";
    pub const CGROUPS: &str = "docs/troubleshooting.md#cgroups";
    pub const AGENTS: &str = "docs/troubleshooting.md#the-agents";
    pub const WEBHOOK: &str = "docs/troubleshooting.md#the-webhook";
    pub const RIGHTS: &str = "docs/troubleshooting.md#rights";
    pub const NODES: &str = "docs/platforms.md#nodes";
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub subject: &'static str,
    pub outcome: Outcome,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Right,
    /// Redirection does not work, or may not work, in some cases.
    Warning(Advice),
    /// Pods are not redirected, or do not start.
    Failed(Advice),
}

/// The remedy, and the page that explains it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    pub remedy: String,
    /// A constant of [`page`].
    pub page: &'static str,
}

impl Finding {
    pub fn right(subject: &'static str, text: impl Into<String>) -> Self {
        Self { subject, outcome: Outcome::Right, text: text.into() }
    }

    pub fn warning(
        subject: &'static str,
        text: impl Into<String>,
        remedy: impl Into<String>,
        page: &'static str,
    ) -> Self {
        Self { subject, outcome: Outcome::Warning(Advice { remedy: remedy.into(), page }), text: text.into() }
    }

    pub fn failed(
        subject: &'static str,
        text: impl Into<String>,
        remedy: impl Into<String>,
        page: &'static str,
    ) -> Self {
        Self { subject, outcome: Outcome::Failed(Advice { remedy: remedy.into(), page }), text: text.into() }
    }
}

impl Outcome {
    /// The outcome's name in JSON.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Right => "ok",
            Self::Warning(_) => "warning",
            Self::Failed(_) => "failed",
        }
    }

    pub fn advice(&self) -> Option<&Advice> {
        match self {
            Self::Right => None,
            Self::Warning(advice) | Self::Failed(advice) => Some(advice),
        }
    }
}
