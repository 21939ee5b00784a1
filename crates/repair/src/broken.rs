//! Detects broken pods: validation failed with the exit code for missing redirection, or the requested sidecar is missing.
//!
//! Pure. Both the current and the last termination of the validation container are checked, so that pods whose container
//! is never restarted are found, too.

use std::fmt;
use std::net::IpAddr;

use contract::dapr;
use podfacts::PodName;
use podfacts::SkipReason;

use super::lineage::Lineage;
use super::pod::{Container, OwnerReference, Pod, Status, Terminated};
use super::settings::{RepairSettings, Symptom, Validation};

/// A broken pod, with the fields that decisions and actions need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    pub pod: PodName,
    /// `metadata.uid`
    pub uid: String,
    /// `metadata.resourceVersion`
    pub version: String,
    pub node: String,
    /// All pod IPs; empty if the pod has no sandbox.
    pub ips: Vec<IpAddr>,
    /// The failed or missing container.
    pub container: String,
    /// The container's restart count at the failure.
    pub attempt: u32,
    /// The container's current restart count.
    pub restarts: u32,
    pub evidence: Evidence,
    pub owner: Owner,
    pub deleting: bool,
    /// Whether the kubelet will restart the container.
    pub retries: bool,
    /// Whether the container is running and might succeed.
    pub validating: bool,
    /// Whether the pod has the label for broken pods, with any value.
    pub labelled: bool,
    /// `None` without a controller.
    pub lineage: Option<Box<Lineage>>,
    /// Why the plugin would also skip the pod's next sandbox; `None` if it would not, or if that is not known.
    pub skipped: Option<SkipReason>,
}

/// The container state with the failed termination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// `state`
    Current,
    /// `lastState`: the container waits for its restart or runs again.
    Last,
}

/// The owner that would replace a deleted pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Controller,
    /// The kubelet, for a static pod. Deleting the mirror pod in the API does not restart the static pod.
    Node,
    Nobody,
}

/// Why a pod is not treated as broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotBroken {
    NotSelected,
    /// The pod does not request Dapr's sidecar.
    NotEnabled,
    HasSidecar,
    /// The pod's phase is `Succeeded` or `Failed`.
    Finished,
    /// The pod uses the node's netns, which is never redirected.
    HostNetwork,
    /// The sidecar annotation is missing.
    NoAnnotation,
    /// The status has no validation container (yet).
    NoContainer,
    /// The latest validation succeeded.
    Recovered,
    NotEnded,
    OtherExitCode,
    OtherMessage,
}

impl NotBroken {
    /// Returns the reason's name in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotSelected => "not_selected",
            Self::NotEnabled => "not_enabled",
            Self::HasSidecar => "has_sidecar",
            Self::Finished => "finished",
            Self::HostNetwork => "host_network",
            Self::NoAnnotation => "no_annotation",
            Self::NoContainer => "no_container",
            Self::Recovered => "recovered",
            Self::NotEnded => "not_ended",
            Self::OtherExitCode => "other_exit_code",
            Self::OtherMessage => "other_message",
        }
    }
}

impl fmt::Display for NotBroken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Checks a pod for the symptom in `settings`.
pub fn detect(pod: &Pod, settings: &RepairSettings) -> Result<Broken, NotBroken> {
    if !settings.selector.selects(pod) {
        return Err(NotBroken::NotSelected);
    }
    match &settings.symptom {
        Symptom::Validation(validation) => unvalidated(pod, validation, settings),
        Symptom::NoSidecar => without_sidecar(pod),
    }
}

/// Checks whether a pod has Dapr's annotation, parsed as the injector does, but not the sidecar. Such a pod stays
/// broken, because containers cannot be added to an existing pod.
fn without_sidecar(pod: &Pod) -> Result<Broken, NotBroken> {
    let Pod { metadata, spec, status, .. } = pod;
    let enabled = metadata.annotations.as_ref().and_then(|all| all.get(dapr::ENABLED)?.0.as_deref());
    if !enabled.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Err(NotBroken::NotEnabled);
    }
    let mut containers = spec.containers.iter().chain(&spec.init_containers).flatten();
    if containers.any(|container| container.name == dapr::SIDECAR) {
        return Err(NotBroken::HasSidecar);
    }
    if is_finished(status) {
        return Err(NotBroken::Finished);
    }
    let absent = Container { name: dapr::SIDECAR.to_owned(), ..Container::default() };
    Ok(describe(pod, &absent, Evidence::Current, 0, ""))
}

/// Checks the validation container. If several containers pass the filters, the first broken one is described.
fn unvalidated(pod: &Pod, validation: &Validation, settings: &RepairSettings) -> Result<Broken, NotBroken> {
    if pod.spec.host_network {
        return Err(NotBroken::HostNetwork);
    }
    let has = |key: &str| pod.metadata.annotations.as_ref().is_some_and(|keys| keys.contains_key(key));
    if !validation.annotation.is_empty() && !has(&validation.annotation) {
        return Err(NotBroken::NoAnnotation);
    }
    let mut reason = NotBroken::NoContainer;
    let named = |c: &&Container| validation.container.is_empty() || c.name == validation.container;
    for container in pod.status.init_container_statuses.iter().flatten().filter(named) {
        match failure(container, validation) {
            Ok((evidence, attempt)) => return Ok(describe(pod, container, evidence, attempt, &settings.label_key)),
            Err(sound) => reason = sound,
        }
    }
    Err(reason)
}

/// Returns the container state with a termination that passes the filters, and the number of the terminated attempt.
fn failure(container: &Container, validation: &Validation) -> Result<(Evidence, u32), NotBroken> {
    let current = container.state.terminated.as_ref();
    if current.is_some_and(|ended| ended.reason == "Completed" || ended.exit_code == 0) {
        return Err(NotBroken::Recovered);
    }
    let last = container.last_state.terminated.as_ref();
    let matched = match (current.map(|ended| matches(ended, validation)), last.map(|ended| matches(ended, validation)))
    {
        (Some(Ok(())), _) => Ok(Evidence::Current),
        (_, Some(Ok(()))) => Ok(Evidence::Last),
        (Some(Err(sound)), _) | (None, Some(Err(sound))) => Err(sound),
        (None, None) => Err(NotBroken::NotEnded),
    };
    // `restartCount` is the number of the attempt in `state`. While the container waits for its restart, `state` has no
    // attempt, and `restartCount` is the number of the attempt in `lastState`.
    let moved_on = container.state.running.is_some() || current.is_some();
    matched.map(|evidence| match evidence {
        Evidence::Last if moved_on => (evidence, container.restart_count.saturating_sub(1)),
        _ => (evidence, container.restart_count),
    })
}

fn matches(ended: &Terminated, validation: &Validation) -> Result<(), NotBroken> {
    if validation.exit_code != 0 && ended.exit_code != validation.exit_code {
        return Err(NotBroken::OtherExitCode);
    }
    let message = validation.message.trim();
    if !message.is_empty() && ended.message.trim() != message {
        return Err(NotBroken::OtherMessage);
    }
    Ok(())
}

fn describe(pod: &Pod, container: &Container, evidence: Evidence, attempt: u32, label: &str) -> Broken {
    let Pod { metadata, spec, status, .. } = pod;
    Broken {
        pod: pod.pod_name(),
        uid: metadata.uid.clone(),
        version: metadata.resource_version.clone(),
        node: spec.node_name.clone(),
        ips: addresses(pod),
        container: container.name.clone(),
        attempt,
        restarts: container.restart_count,
        evidence,
        owner: owner(pod),
        deleting: metadata.deletion_timestamp.is_some(),
        retries: !is_finished(status) && spec.restart_policy != "Never",
        validating: container.state.running.is_some(),
        labelled: metadata.labels.as_ref().is_some_and(|keys| keys.contains_key(label)),
        lineage: lineage(pod).map(Box::new),
        skipped: None,
    }
}

fn is_finished(status: &Status) -> bool {
    matches!(status.phase.as_str(), "Failed" | "Succeeded")
}

fn addresses(pod: &Pod) -> Vec<IpAddr> {
    let all: Vec<IpAddr> = pod.status.pod_ips.iter().flatten().filter_map(|address| address.ip.parse().ok()).collect();
    if all.is_empty() { pod.status.pod_ip.parse().into_iter().collect() } else { all }
}

fn controller(pod: &Pod) -> Option<&OwnerReference> {
    pod.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

fn lineage(pod: &Pod) -> Option<Lineage> {
    let (controller, created) = (controller(pod)?.uid.clone(), pod.metadata.creation_timestamp?);
    Some(Lineage { controller, created })
}

fn owner(pod: &Pod) -> Owner {
    match controller(pod) {
        Some(owner) if owner.kind == "Node" => Owner::Node,
        Some(_) => Owner::Controller,
        None => Owner::Nobody,
    }
}

#[cfg(test)]
mod tests;
