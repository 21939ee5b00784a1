//! What `tracker` hands out and gets back: a pod with what is decided about it, and how the action ended.

use std::time::Duration;

use super::broken::Broken;
use super::decide::Decision;
use crate::converge;

/// A broken pod and what is decided about it.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) broken: Broken,
    pub(super) decision: Decision,
    /// The first try of this action.
    pub(super) first: bool,
    /// Another decision than the last one about this pod, or one for another reason.
    pub(super) news: bool,
}

/// How an action ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The pod is being evicted or deleted.
    Ended,
    /// It has the label.
    Labelled,
    /// Its netns is as it should be; attempts up to `restarts` began before.
    Reprogrammed { restarts: u32, done: converge::Outcome },
    /// There is no such pod any more, or it is sound by now.
    Gone,
    /// It has changed since.
    Conflict,
    /// It can never be reprogrammed.
    Hopeless(String),
    /// Again later: at the time that the server asks for, or after a while.
    Failed { error: String, wait: Option<Duration> },
    /// Nothing was done, as asked.
    DryRun,
    /// Nothing is to be done but to tell it.
    Reported,
}
