//! The part of a pod that this crate reads.

use std::collections::BTreeMap;

/// The fields of a pod that determine its redirection.
#[derive(Debug, Clone, Copy)]
pub struct PodSettings<'a> {
    pub annotations: &'a BTreeMap<String, String>,
    /// The environment of the container `istio-proxy`, if the pod has one.
    pub env: Option<&'a BTreeMap<String, String>>,
    /// `securityContext.runAsUser` of that container.
    pub run_as_user: Option<u32>,
    /// `securityContext.runAsGroup` of that container.
    pub run_as_group: Option<u32>,
}
