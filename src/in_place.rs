//! Repairs a pod in place, for `repair`: computes the plugin's verdict from the pod, finds its netns and converges the
//! rules.
//!
//! `daemon` passes [`InPlace`] to `repair`, which calls it on a blocking thread. Makes no API requests.

mod flags;

use std::fmt::Display;
use std::net::IpAddr;
use std::path::PathBuf;

use contract::IptablesBinary;
use contract::diagnostics::{Documented, LogScope};
use podfacts::{ExtractError, PodFacts, PodName, SkipReason, Verdict, of_pod};
use podnet::converge::{self, OnDifference, Options};
use podnet::netns::find::{self, PodIdentity, SearchPaths};
use podnet::netns::{self, Netns};
use redirect::{istio, rules};
use repair::{Reprogram, ReprogramError};

pub use flags::InPlaceFlags;

/// The scope of this module's log lines, which is repair's.
pub const LOG_SCOPE: LogScope = LogScope::new(module_path!(), "repair");

/// An invalid flag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    #[error("FORCE_IPTABLES_BINARY {0}: allowed are legacy and nft")]
    Forced(String),
}

impl Documented for FlagError {
    const ENTRY: &'static str = "in-place-flag-error";
}

/// The rules of a pod's netns could not be programmed.
#[derive(Debug, thiserror::Error)]
enum Error {
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
    /// Another netns took the path after the search.
    #[error("the pod's network namespace was replaced before it could be entered")]
    Replaced,
    #[error(transparent)]
    Converge(#[from] converge::Error),
}

/// Repairs pods in place, with the options from the flags.
#[derive(Debug, Clone)]
pub struct InPlace {
    /// The locations of the node's network namespaces.
    pub places: SearchPaths,
    /// Options for programming rules.
    pub rules: Options,
}

impl InPlace {
    /// Validates the flags.
    pub fn parse(flags: &InPlaceFlags) -> Result<Self, FlagError> {
        let forced = match flags.repair_force_iptables_binary.as_str() {
            "" => None,
            text => Some(IptablesBinary::named(text).ok_or_else(|| FlagError::Forced(text.to_owned()))?),
        };
        Ok(Self {
            places: SearchPaths {
                dirs: flags.repair_netns_dirs.split(',').filter(|dir| !dir.is_empty()).map(PathBuf::from).collect(),
                proc: PathBuf::from(&flags.repair_proc),
            },
            rules: Options {
                native_nftables: flags.repair_native_nftables.0 == Some(true),
                forced,
                on_difference: OnDifference::Reconcile,
                owned: &istio::OWNED,
            },
        })
    }

    fn converge(&self, name: &PodName, ips: &[IpAddr], pod: &[u8]) -> Result<converge::Outcome, Error> {
        let facts = PodFacts::from_pod_json(pod)?;
        let (redirect, warnings) = match of_pod(&facts).map_err(Error::Annotation)? {
            Verdict::Skip(reason) => return Err(Error::Skip(reason)),
            Verdict::Redirect { redirect, warnings } => (redirect, warnings),
        };
        for warning in warnings {
            tracing::warn!(pod = %name, %warning, "a value of the pod is ignored");
        }
        let path = find::find(&self.places, &PodIdentity { ips, uid: &facts.uid })?;
        let done: Result<converge::Outcome, Error> = Netns::open(&path)?.enter(|| {
            if !find::has_all(ips)? {
                return Err(Error::Replaced);
            }
            Ok(converge::apply(&redirect.desired(), self.rules)?)
        })?;
        let warn = |warning: &dyn Display| {
            tracing::warn!(pod = %name, %warning, "the rules do not include all settings of the pod");
        };
        if let Ok(done) = &done {
            rules::warning(&redirect).iter().for_each(|warning| warn(warning));
            done.warning.iter().for_each(|warning| warn(warning));
        }
        done
    }
}

impl Reprogram for InPlace {
    fn reprogram(&self, name: &PodName, ips: &[IpAddr], pod: &[u8]) -> Result<&'static str, ReprogramError> {
        match self.converge(name, ips, pod) {
            Ok(done) => Ok(done.change.as_str()),
            Err(error @ (Error::Facts(_) | Error::Skip(_) | Error::Annotation(_))) => {
                Err(ReprogramError::Hopeless(error.into()))
            }
            Err(error) => Err(ReprogramError::Failed(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        flags: InPlaceFlags,
    }

    #[test]
    fn a_forced_backend_is_legacy_or_nft() {
        let forced = |name: &str| {
            let flags = Program::parse_from(["x", "--repair-force-iptables-binary", name]).flags;
            InPlace::parse(&flags).map(|in_place| in_place.rules.forced)
        };
        assert_eq!(forced(""), Ok(None));
        assert_eq!(forced("legacy"), Ok(Some(IptablesBinary::Legacy)));
        assert_eq!(forced("xtables"), Err(FlagError::Forced("xtables".to_owned())));
    }
}
