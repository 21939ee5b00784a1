//! In-place repair: the pod's facts give the verdict that the plugin would have given, its netns is found and converged.
//!
//! Blocking; `act` runs it on a thread for that. Nothing here asks the API server.

use super::broken::Broken;
use super::settings::Settings;
use crate::netns::find::PodIdentity;
use crate::netns::{self, Netns, find};
use crate::plugin::{SkipReason, Verdict, of_pod};
use crate::pod::{ExtractError, PodFacts};
use crate::{converge, redirect};

/// Why a pod's netns was not brought to what the pod asks for.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The API server's pod is none.
    #[error(transparent)]
    Facts(#[from] ExtractError),
    /// The plugin would leave it alone.
    #[error("the plugin redirects no such pod: {0}")]
    Skip(SkipReason),
    /// The plugin would refuse it.
    #[error("the pod asks for what cannot be: {0}")]
    Annotation(redirect::Error),
    /// It is not found.
    #[error(transparent)]
    Find(#[from] find::Error),
    /// It cannot be visited.
    #[error(transparent)]
    Netns(#[from] netns::Error),
    /// Between search and visit, another namespace has taken its name.
    #[error("the network namespace is another one by now")]
    Replaced,
    /// The kernel refuses.
    #[error(transparent)]
    Converge(#[from] converge::Error),
}

impl Error {
    /// Trying again gives the same, as long as the pod is the same.
    pub(super) fn is_hopeless(&self) -> bool {
        matches!(self, Self::Facts(_) | Self::Skip(_) | Self::Annotation(_))
    }
}

/// Does what the plugin's ADD would have done, for a pod as the API server sends it.
pub(super) fn reprogram(broken: &Broken, pod: &[u8], settings: &Settings) -> Result<converge::Outcome, Error> {
    let facts = PodFacts::from_pod_json(pod)?;
    let (redirect, warnings) = match of_pod(&facts).map_err(Error::Annotation)? {
        Verdict::Skip(reason) => return Err(Error::Skip(reason)),
        Verdict::Redirect { redirect, warnings } => (redirect, warnings),
    };
    for warning in warnings {
        tracing::warn!(pod = %broken.pod, %warning, "a value of the pod is passed over");
    }
    let path = find::find(&settings.places, &PodIdentity { ips: &broken.ips, uid: &facts.uid })?;
    let done: Result<converge::Outcome, Error> = Netns::open(&path)?.enter(|| {
        if !find::has_all(&broken.ips)? {
            return Err(Error::Replaced);
        }
        Ok(converge::apply(&redirect, settings.rules)?)
    })?;
    for warning in done.iter().flat_map(|done| &done.warnings) {
        tracing::warn!(pod = %broken.pod, %warning, "not all that the pod asks for is among the rules");
    }
    done
}
