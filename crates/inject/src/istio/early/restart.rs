//! Whether the kubelet starts a container again that it has ended because of its hook.

use serde_json::Value;

use crate::pod::{self, INIT_CONTAINERS};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Restart {
    Always,
    OnFailure,
    /// The rules of the container decide by its exit code.
    ByRules,
    Never,
}

impl Restart {
    /// Returns that of a container in the list `which`, if the pod has this `restartPolicy`: the container's own policy and rules precede
    /// it.
    pub(super) fn of(policy: &str, which: &str, container: &Value) -> Self {
        if which == INIT_CONTAINERS {
            return Self::Always;
        }
        let own = pod::text(container, "restartPolicy");
        let rules = pod::list(container, "restartPolicyRules").iter();
        let restarts = rules.map(|rule| pod::text(rule, "action")).any(|action| action.starts_with("Restart"));
        match (if own.is_empty() { policy } else { own }, restarts) {
            ("Never" | "OnFailure", true) => Self::ByRules,
            ("Never", false) => Self::Never,
            ("OnFailure", false) => Self::OnFailure,
            _ => Self::Always,
        }
    }

    /// Returns what the kubelet does with the container, as a predicate.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Always => "ends it and starts it again",
            Self::OnFailure => "ends it, and starts it again unless it ends with 0",
            Self::ByRules => "ends it, and starts it again as far as its restartPolicy and restartPolicyRules say",
            Self::Never => "ends it, and does not start it again",
        }
    }
}
