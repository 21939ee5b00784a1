//! The interface to in-place repair of a pod. The program that uses this crate implements it; this crate enters no netns.

use std::fmt::Debug;
use std::net::IpAddr;

use podfacts::PodName;

/// Programs the rules in a pod's netns.
pub trait Reprogram: Debug + Send + Sync {
    /// Programs the rules as the plugin's ADD would, and returns the change's name in logs. `ips` are the pod's addresses, `pod`
    /// is the API server's JSON. Blocking; makes no API request.
    ///
    /// # Errors
    /// Fails if the plugin would skip or refuse the pod, or if its netns cannot be found, entered or programmed.
    fn reprogram(&self, name: &PodName, ips: &[IpAddr], pod: &[u8]) -> Result<&'static str, ReprogramError>;
}

/// The rules of a pod's netns could not be programmed.
#[derive(Debug, thiserror::Error)]
pub enum ReprogramError {
    /// A retry fails as long as the pod does not change.
    #[error(transparent)]
    Hopeless(Box<dyn std::error::Error + Send + Sync>),
    /// A retry may succeed.
    #[error(transparent)]
    Failed(Box<dyn std::error::Error + Send + Sync>),
}
