//! Whether the kubelet restarts a container that it killed because its `postStart` hook failed.

use serde_json::Value;

use crate::pod::{self, INIT_CONTAINERS};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Restart {
    Always,
    OnFailure,
    /// The container's `restartPolicyRules` decide by its exit code.
    ByRules,
    Never,
}

impl Restart {
    /// Returns what applies to a container in the list `which` of a pod with this `restartPolicy`. The container's own policy and rules
    /// take precedence.
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

    /// Returns what the kubelet does with the container, as the predicate of a sentence.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Always => "ends it and starts it again",
            Self::OnFailure => "ends it, and starts it again unless it ends with 0",
            Self::ByRules => "ends it, and starts it again as far as its restartPolicy and restartPolicyRules say",
            Self::Never => "ends it, and does not start it again",
        }
    }
}
