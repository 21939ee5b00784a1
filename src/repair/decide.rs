//! What becomes of a broken pod: one pure function from what is known to a decision with its reason.

use std::fmt;
use std::time::Duration;

use super::broken::{Broken, Owner};
use super::settings::{Mode, Settings};

/// What becomes of a broken pod now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// This is done.
    Act(Action),
    /// Not before then, and why.
    Later(Duration, Reason),
    /// Nothing, and why.
    Nothing(Reason),
}

/// What can be done about a broken pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It is evicted; disruption budgets hold.
    Evict,
    /// It is deleted, whatever the budgets say.
    Delete,
    /// It gets the label of broken pods.
    Label,
    /// Its netns is brought to what the plugin would have made of it.
    Reprogram,
    /// It is told as an event that it is as it is, and why nothing else is done about it.
    Report(Reason),
}

impl Action {
    /// Metric label and log field; Istio's word where it has one.
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

/// Why a broken pod is left alone, now or for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Someone deletes it already.
    Deleting,
    /// It was evicted or deleted; the API server will tell when it is gone.
    Ended,
    /// It carries the label.
    Labelled,
    /// What would be done was logged.
    DryRun,
    /// It was told as an event.
    Reported,
    /// It has taken the place of a deleted pod, and is no better.
    Replacement,
    /// No setting asks for more than detection.
    ObserveOnly,
    /// No controller would replace it, and `--repair-standalone-pods` is not set.
    Standalone,
    /// It is made from a file on its node: ending it in the API restarts nothing.
    StaticPod,
    /// It runs on another node, whose namespaces are out of reach.
    OtherNode,
    /// Its validation is never run again: rules would come too late.
    NoRetry,
    /// Its validation runs again right now, and might pass: it is not ended in the middle of that.
    Validating,
    /// It was reprogrammed; its validation has not been run since.
    AwaitsValidation,
    /// It cannot be reprogrammed, however often one tries.
    Hopeless,
    /// What was tried failed a moment ago.
    BackOff,
    /// This node starts pods without redirection for now: what replaces the pod may be no better.
    NodeNotReady,
    /// It replaces a pod that was evicted or deleted, and is broken, too: its controller's next turn comes later.
    ControllerBackOff,
    /// Its namespace has had its share of the actions of this minute.
    NamespaceShare,
    /// The actions of this minute are used up.
    Budget,
}

impl Reason {
    /// Whether it means that repair gives a broken pod up, for good or for a while, and nobody has been told so yet.
    pub fn gives_up(self) -> bool {
        matches!(self, Self::ControllerBackOff | Self::Standalone | Self::StaticPod | Self::NoRetry)
    }

    /// For logs and metric labels.
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

/// What has been done about a pod so far. All times are those since the controller started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct History {
    /// Actions in a row that did not succeed.
    pub failures: u32,
    /// No action before then.
    pub not_before: Duration,
    /// What needs no second time.
    pub acted: Option<Acted>,
    /// Attempts up to this one began before the pod was reprogrammed and say nothing about it.
    pub reprogrammed: Option<u32>,
    /// It has taken the place of a deleted pod.
    pub replacement: bool,
    /// The node is not ready for what would replace the pod.
    pub node_not_ready: bool,
    /// When its controller's pods may be ended again.
    pub controller: Duration,
    /// When its namespace's share of the budget has room.
    pub share: Duration,
    /// When the budget of actions has room.
    pub room: Duration,
}

/// What was done about a pod for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acted {
    /// Evicted or deleted.
    Ended,
    /// Labelled.
    Labelled,
    /// Found to be beyond reprogramming.
    Hopeless,
    /// Logged, as a dry run does.
    DryRun,
    /// Told as an event.
    Reported,
}

/// What is to be done about a broken pod at `now`, since the controller started.
pub fn decide(broken: &Broken, history: &History, settings: &Settings, now: Duration) -> Decision {
    let action = match settled(broken, history).map_or_else(|| remedy(broken, history, settings), Err) {
        Ok(action) => action,
        Err(reason) => return Decision::Nothing(reason),
    };
    if history.node_not_ready {
        return Decision::Nothing(Reason::NodeNotReady);
    }
    match brakes(action, history).into_iter().find(|(until, _)| *until > now) {
        Some((until, reason)) => Decision::Later(until, reason),
        None => Decision::Act(action),
    }
}

/// Until when an action has to wait. Of the two limits of a minute, the one that lasts longer is named.
fn brakes(action: Action, history: &History) -> [(Duration, Reason); 4] {
    let ends = matches!(action, Action::Evict | Action::Delete);
    let controller = if ends { history.controller } else { Duration::ZERO };
    let share = if history.share > history.room { history.share } else { Duration::ZERO };
    [
        (history.not_before, Reason::BackOff),
        (controller, Reason::ControllerBackOff),
        (share, Reason::NamespaceShare),
        (history.room, Reason::Budget),
    ]
}

/// Why nothing is left to do, whatever the mode.
fn settled(broken: &Broken, history: &History) -> Option<Reason> {
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

fn remedy(broken: &Broken, history: &History, settings: &Settings) -> Result<Action, Reason> {
    match settings.mode {
        Mode::Observe => Err(Reason::ObserveOnly),
        Mode::Label if broken.labelled => Err(Reason::Labelled),
        Mode::Label => Ok(Action::Label),
        Mode::Evict => may_end(broken, settings).map(|()| Action::Evict),
        Mode::Delete => may_end(broken, settings).map(|()| Action::Delete),
        Mode::Repair => in_place(broken, history, settings),
        Mode::RepairOrEvict => repair_or_evict(broken, history, settings),
        Mode::Report => Ok(Action::Report(Reason::ObserveOnly)),
        Mode::DeleteOrReport if history.replacement => Ok(Action::Report(Reason::Replacement)),
        Mode::DeleteOrReport => Ok(may_end(broken, settings).map_or_else(Action::Report, |()| Action::Delete)),
    }
}

/// Ending a pod mends it only where another one takes its place.
fn may_end(broken: &Broken, settings: &Settings) -> Result<(), Reason> {
    match broken.owner {
        Owner::Node => Err(Reason::StaticPod),
        Owner::Nobody if !settings.standalone => Err(Reason::Standalone),
        Owner::Controller | Owner::Nobody if broken.validating => Err(Reason::Validating),
        Owner::Controller | Owner::Nobody => Ok(()),
    }
}

fn in_place(broken: &Broken, history: &History, settings: &Settings) -> Result<Action, Reason> {
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

/// In place first. A validation that fails afterwards, or that is never run again, leaves eviction; where eviction is
/// out of the question, the pod is reprogrammed again.
fn repair_or_evict(broken: &Broken, history: &History, settings: &Settings) -> Result<Action, Reason> {
    let mended = in_place(broken, history, settings);
    match mended {
        Ok(_) if history.reprogrammed.is_none() => mended,
        Ok(_) | Err(Reason::NoRetry) => match may_end(broken, settings) {
            Ok(()) => Ok(Action::Evict),
            Err(Reason::Validating) => Err(Reason::Validating),
            Err(reason) => mended.map_err(|_| reason),
        },
        Err(_) => mended,
    }
}

#[cfg(test)]
pub(super) mod tests;
