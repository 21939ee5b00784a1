//! Repairs a pod in place: computes the plugin's verdict from the pod, finds its netns and converges the rules.
//!
//! Blocking: `act` calls it on a blocking thread. Makes no API requests.

use std::fmt::Display;

use podfacts::{ExtractError, PodFacts};
use podfacts::{SkipReason, Verdict, of_pod};
use podnet::converge;
use podnet::netns::find::{self, PodIdentity};
use podnet::netns::{self, Netns};
use redirect::rules;

use super::broken::Broken;
use super::settings::Settings;

/// The rules of a pod's netns could not be programmed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Facts(#[from] ExtractError),
    /// The plugin would skip the pod.
    #[error("the plugin skips the pod: {0}")]
    Skip(SkipReason),
    /// The plugin would refuse the pod.
    #[error("the pod has an invalid annotation: {0}")]
    Annotation(redirect::Error),
    #[error(transparent)]
    Find(#[from] find::Error),
    #[error(transparent)]
    Netns(#[from] netns::Error),
    /// Another namespace took the path between the search and the entry.
    #[error("the pod's network namespace was replaced before it could be entered")]
    Replaced,
    #[error(transparent)]
    Converge(#[from] converge::Error),
}

impl Error {
    /// Whether a retry fails as long as the pod does not change.
    pub(super) fn is_hopeless(&self) -> bool {
        matches!(self, Self::Facts(_) | Self::Skip(_) | Self::Annotation(_))
    }
}

/// Programs the rules as the plugin's ADD would. `pod` is the API server's JSON.
pub(super) fn reprogram(broken: &Broken, pod: &[u8], settings: &Settings) -> Result<converge::Outcome, Error> {
    let facts = PodFacts::from_pod_json(pod)?;
    let (redirect, warnings) = match of_pod(&facts).map_err(Error::Annotation)? {
        Verdict::Skip(reason) => return Err(Error::Skip(reason)),
        Verdict::Redirect { redirect, warnings } => (redirect, warnings),
    };
    for warning in warnings {
        tracing::warn!(pod = %broken.pod, %warning, "a value of the pod is ignored");
    }
    let path = find::find(&settings.places, &PodIdentity { ips: &broken.ips, uid: &facts.uid })?;
    let done: Result<converge::Outcome, Error> = Netns::open(&path)?.enter(|| {
        if !find::has_all(&broken.ips)? {
            return Err(Error::Replaced);
        }
        Ok(converge::apply(&redirect.desired(), settings.rules)?)
    })?;
    let warn = |warning: &dyn Display| {
        tracing::warn!(pod = %broken.pod, %warning, "the rules do not include all settings of the pod");
    };
    if let Ok(done) = &done {
        rules::warning(&redirect).iter().for_each(|warning| warn(warning));
        done.warning.iter().for_each(|warning| warn(warning));
    }
    done
}
