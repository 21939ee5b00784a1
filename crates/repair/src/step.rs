//! The values exchanged with `tracker`: a pod with its decision, and the outcome of an action.

use std::time::Duration;

use super::broken::Broken;
use super::decide::Decision;

/// A broken pod and the decision about it.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) broken: Broken,
    pub(super) decision: Decision,
    /// Whether this is the first attempt of the action.
    pub(super) is_first_attempt: bool,
    /// Whether the decision or its reason differs from the pod's last one.
    pub(super) is_new: bool,
}

/// The outcome of an action.
#[derive(Debug)]
pub(super) enum RepairOutcome {
    /// The pod was evicted or deleted.
    Ended,
    Labelled,
    /// The rules are in place. Validation attempts up to the number `restarts` began before that.
    Reprogrammed {
        restarts: u32,
        /// The change's name in logs.
        change: &'static str,
    },
    /// The pod no longer exists or is no longer broken.
    Gone,
    /// The pod changed since it was read.
    Conflict,
    /// Reprogramming fails as long as the pod does not change.
    Hopeless(String),
    /// A retry may succeed, after the delay that the server requests or a back-off.
    Failed {
        error: String,
        wait: Option<Duration>,
    },
    DryRun,
    /// The action was only to record an event.
    Reported,
}
