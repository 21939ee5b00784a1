//! Decides what to do about a broken pod, with a reason if it is not acted on. Pure.

use std::fmt;
use std::time::Duration;

use podfacts::SkipReason;

use super::broken::{Broken, Owner};
use super::settings::{Mode, RepairSettings};

/// The decision about a broken pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Act(Action),
    /// Acting is delayed until this time.
    Later(Duration, Reason),
    Nothing(Reason),
}

/// An action on a broken pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Evicts the pod; disruption budgets apply.
    Evict,
    /// Deletes the pod regardless of disruption budgets.
    Delete,
    /// Adds the label for broken pods.
    Label,
    /// Programs the rules in the pod's netns as the plugin would.
    Reprogram,
    /// Records an event that the pod is broken, and why no other action is taken.
    Report(Reason),
}

impl Action {
    /// Returns the name in metric labels and logs, which is Istio's if Istio has the action.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Evict => "evict",
            Self::Delete => "delete",
            Self::Label => "label",
            Self::Reprogram => "repair",
            Self::Report(_) => "report",
        }
    }
}

/// Why a broken pod is not acted on, for now or at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The pod is already being deleted.
    Deleting,
    /// The pod was evicted or deleted, and the watch has not reported its end yet.
    Ended,
    /// The pod has the label.
    Labelled,
    /// Dry run: the action was logged.
    DryRun,
    /// An event was recorded.
    Reported,
    /// The pod replaces a deleted one and is broken, too.
    Replacement,
    /// The mode is detection only.
    ObserveOnly,
    /// No controller would replace the pod, and `--repair-standalone-pods` is not set.
    Standalone,
    /// Deleting a static pod's mirror pod does not restart it.
    StaticPod,
    /// The pod runs on another node, whose namespaces are not accessible.
    OtherNode,
    /// The validation container is never restarted, so rules would come too late.
    NoRetry,
    /// The plugin would also skip the pod's next sandbox.
    Skipped(SkipReason),
    /// The validation container is running and might succeed.
    Validating,
    /// The pod was reprogrammed, and validation has not run since.
    AwaitsValidation,
    /// Reprogramming failed with an error that no retry changes.
    Hopeless,
    /// The previous action failed recently.
    BackOff,
    /// The node does not redirect new pods at present: a replacement might be broken, too.
    NodeNotReady,
    /// The pod replaces an evicted or deleted one and is broken, too: its controller is in back-off.
    ControllerBackOff,
    /// The namespace has used its share of this minute's budget.
    NamespaceShare,
    /// This minute's budget is used up.
    Budget,
}

impl Reason {
    /// Whether repair gives up on the pod, for a while or for good, without an action that reports it.
    pub fn gives_up(self) -> bool {
        matches!(self, Self::ControllerBackOff | Self::Standalone | Self::StaticPod | Self::NoRetry | Self::Skipped(_))
    }

    /// Returns the name in logs and metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deleting => "deleting",
            Self::Ended => "ended",
            Self::Labelled => "labelled",
            Self::DryRun => "dry_run",
            Self::Reported => "reported",
            Self::Replacement => "replacement",
            Self::ObserveOnly => "observe_only",
            Self::Standalone => "standalone",
            Self::StaticPod => "static_pod",
            Self::OtherNode => "other_node",
            Self::NoRetry => "no_retry",
            Self::Skipped(reason) => reason.as_str(),
            Self::Validating => "validating",
            Self::AwaitsValidation => "awaits_validation",
            Self::Hopeless => "hopeless",
            Self::BackOff => "back_off",
            Self::NodeNotReady => "node_not_ready",
            Self::ControllerBackOff => "controller_back_off",
            Self::NamespaceShare => "namespace_share",
            Self::Budget => "budget",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Previous actions on a pod and the limits on the next one. Times are relative to the controller's start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct History {
    /// Consecutive failed actions.
    pub failures: u32,
    /// The end of the back-off after a failure.
    pub not_before: Duration,
    /// The final action, which is not repeated.
    pub acted: Option<Acted>,
    /// The number of the last validation attempt that began before the pod was reprogrammed. Failures of attempts up to
    /// this number are ignored.
    pub reprogrammed: Option<u32>,
    /// Whether the pod replaces a deleted one.
    pub replacement: bool,
    /// Whether the node does not yet redirect new pods.
    pub node_not_ready: bool,
    /// The end of the back-off of the pod's controller.
    pub controller_back_off: Duration,
    /// The earliest time within the namespace's share of the budget.
    pub namespace_share: Duration,
    /// The earliest time within the budget.
    pub budget: Duration,
}

/// An action that is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acted {
    /// The pod was evicted or deleted.
    Ended,
    Labelled,
    /// Reprogramming failed permanently.
    Hopeless,
    DryRun,
    Reported,
}

/// Decides about a broken pod at `now`, a time relative to the controller's start.
pub fn decide(broken: &Broken, history: &History, settings: &RepairSettings, now: Duration) -> Decision {
    let action = match final_reason(broken, history).map_or_else(|| action_for_mode(broken, history, settings), Err) {
        Ok(action) => action,
        Err(reason) => return Decision::Nothing(reason),
    };
    if history.node_not_ready {
        return Decision::Nothing(Reason::NodeNotReady);
    }
    match delays(action, history).into_iter().find(|(until, _)| *until > now) {
        Some((until, reason)) => Decision::Later(until, reason),
        None => Decision::Act(action),
    }
}

/// Returns the times until which an action is delayed, with their reasons. Of the two budget limits, the one that ends
/// later is the reason.
fn delays(action: Action, history: &History) -> [(Duration, Reason); 4] {
    let ends = matches!(action, Action::Evict | Action::Delete);
    let controller = if ends { history.controller_back_off } else { Duration::ZERO };
    let share = if history.namespace_share > history.budget { history.namespace_share } else { Duration::ZERO };
    [
        (history.not_before, Reason::BackOff),
        (controller, Reason::ControllerBackOff),
        (share, Reason::NamespaceShare),
        (history.budget, Reason::Budget),
    ]
}

/// Returns why no mode has an action left for the pod; `None` if an action is possible.
fn final_reason(broken: &Broken, history: &History) -> Option<Reason> {
    if broken.deleting {
        return Some(Reason::Deleting);
    }
    history.acted.map(|acted| match acted {
        Acted::Ended => Reason::Ended,
        Acted::Labelled => Reason::Labelled,
        Acted::Hopeless => Reason::Hopeless,
        Acted::DryRun => Reason::DryRun,
        Acted::Reported => Reason::Reported,
    })
}

fn action_for_mode(broken: &Broken, history: &History, settings: &RepairSettings) -> Result<Action, Reason> {
    let changes_nothing = broken
        .skipped
        .filter(|_| matches!(settings.mode, Mode::Evict | Mode::Delete | Mode::Repair | Mode::RepairOrEvict));
    if let Some(reason) = changes_nothing {
        return Err(Reason::Skipped(reason));
    }
    match settings.mode {
        Mode::Observe => Err(Reason::ObserveOnly),
        Mode::Label if broken.labelled => Err(Reason::Labelled),
        Mode::Label => Ok(Action::Label),
        Mode::Evict => check_replaceable(broken, settings).map(|()| Action::Evict),
        Mode::Delete => check_replaceable(broken, settings).map(|()| Action::Delete),
        Mode::Repair => reprogram_in_place(broken, history, settings),
        Mode::RepairOrEvict => repair_or_evict(broken, history, settings),
        Mode::Report => Ok(Action::Report(Reason::ObserveOnly)),
        Mode::DeleteOrReport if history.replacement => Ok(Action::Report(Reason::Replacement)),
        Mode::DeleteOrReport => {
            Ok(check_replaceable(broken, settings).map_or_else(Action::Report, |()| Action::Delete))
        }
    }
}

/// Checks that a controller will replace the pod, or that standalone pods are allowed, and that no validation is running.
fn check_replaceable(broken: &Broken, settings: &RepairSettings) -> Result<(), Reason> {
    match broken.owner {
        Owner::Node => Err(Reason::StaticPod),
        Owner::Nobody if !settings.standalone => Err(Reason::Standalone),
        Owner::Controller | Owner::Nobody if broken.validating => Err(Reason::Validating),
        Owner::Controller | Owner::Nobody => Ok(()),
    }
}

fn reprogram_in_place(broken: &Broken, history: &History, settings: &RepairSettings) -> Result<Action, Reason> {
    if settings.node != broken.node {
        return Err(Reason::OtherNode);
    }
    if !broken.retries {
        return Err(Reason::NoRetry);
    }
    match history.reprogrammed {
        Some(before) if broken.attempt <= before => Err(Reason::AwaitsValidation),
        _ => Ok(Action::Reprogram),
    }
}

/// Reprograms first. If validation fails again or never restarts, evicts; if the pod cannot be evicted, reprograms
/// again.
fn repair_or_evict(broken: &Broken, history: &History, settings: &RepairSettings) -> Result<Action, Reason> {
    let in_place = reprogram_in_place(broken, history, settings);
    match in_place {
        Ok(_) if history.reprogrammed.is_none() => in_place,
        Ok(_) | Err(Reason::NoRetry) => match check_replaceable(broken, settings) {
            Ok(()) => Ok(Action::Evict),
            Err(Reason::Validating) => Err(Reason::Validating),
            Err(reason) => in_place.map_err(|_| reason),
        },
        Err(_) => in_place,
    }
}

#[cfg(test)]
pub(super) mod tests;
