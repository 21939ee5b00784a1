//! Whether a pod is broken: its validation has ended with the exit code that says "no redirection", or it lacks the sidecar
//! that it asks for.
//!
//! Pure. Of a validation, the current termination counts as well as the last one, so that containers which are never started again are
//! found, too.

use std::fmt;
use std::net::IpAddr;

use super::lineage::Lineage;
use super::pod::{Container, OwnerReference, Pod, Status, Terminated};
use super::settings::{Settings, Symptom, Validation};
use crate::contract::dapr;
use crate::pod::PodName;

/// A pod whose validation failed, and all that deciding and acting need of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Namespace and name.
    pub pod: PodName,
    /// `metadata.uid`
    pub uid: String,
    /// `metadata.resourceVersion`
    pub version: String,
    /// The node that it is bound to.
    pub node: String,
    /// All its addresses; none where it has no sandbox yet, or no longer.
    pub ips: Vec<IpAddr>,
    /// The container that says so.
    pub container: String,
    /// How often that container had been restarted when it ended so.
    pub attempt: u32,
    /// How often it has been restarted up to now.
    pub restarts: u32,
    /// Where the termination stands.
    pub evidence: Evidence,
    /// Who makes another pod in its place.
    pub owner: Owner,
    /// It is being deleted.
    pub deleting: bool,
    /// The container will be started again.
    pub retries: bool,
    /// It runs, and might pass this time.
    pub validating: bool,
    /// It carries the label of broken pods, whatever its value.
    pub labelled: bool,
    /// What created it; none without a controller.
    pub lineage: Option<Box<Lineage>>,
}

/// Where a termination was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// In the current state.
    Current,
    /// In the last state: the container waits for its next attempt, or makes it.
    Last,
}

/// Who would replace a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A controller.
    Controller,
    /// The kubelet, from a file on the node: deletion in the API does not restart it.
    Node,
    /// Nobody.
    Nobody,
}

/// Why a pod is not broken, or none of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sound {
    /// The selectors do not select it.
    NotSelected,
    /// It does not ask for Dapr's sidecar.
    NotEnabled,
    /// It has that sidecar.
    HasSidecar,
    /// It has come to its end without one.
    Finished,
    /// It lives in the node's netns, where nothing is ever redirected.
    HostNetwork,
    /// It has no sidecar annotation.
    NoAnnotation,
    /// Its status names no such init container (yet).
    NoContainer,
    /// Validation has passed since.
    Recovered,
    /// Validation has not ended yet.
    NotEnded,
    /// It ended with another exit code.
    OtherExitCode,
    /// It ended with another message.
    OtherMessage,
}

impl Sound {
    /// For logs.
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

impl fmt::Display for Sound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a pod is broken by the symptom that `settings` name, else why not.
pub fn detect(pod: &Pod, settings: &Settings) -> Result<Broken, Sound> {
    if !settings.selector.selects(pod) {
        return Err(Sound::NotSelected);
    }
    match &settings.symptom {
        Symptom::Validation(validation) => unvalidated(pod, validation, settings),
        Symptom::NoSidecar => without_sidecar(pod),
    }
}

/// Whether it asks for Dapr's sidecar as the injector reads it, and has none. Whoever has one has it from its first day.
fn without_sidecar(pod: &Pod) -> Result<Broken, Sound> {
    let Pod { metadata, spec, status, .. } = pod;
    let enabled = metadata.annotations.as_ref().and_then(|all| all.get(dapr::ENABLED)?.0.as_deref());
    if !enabled.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Err(Sound::NotEnabled);
    }
    let mut containers = spec.containers.iter().chain(&spec.init_containers).flatten();
    if containers.any(|container| container.name == dapr::SIDECAR) {
        return Err(Sound::HasSidecar);
    }
    if is_finished(status) {
        return Err(Sound::Finished);
    }
    let absent = Container { name: dapr::SIDECAR.to_owned(), ..Container::default() };
    Ok(describe(pod, &absent, Evidence::Current, 0, ""))
}

/// Of several containers that the filters allow, the first broken one counts.
fn unvalidated(pod: &Pod, validation: &Validation, settings: &Settings) -> Result<Broken, Sound> {
    if pod.spec.host_network {
        return Err(Sound::HostNetwork);
    }
    let has = |key: &str| pod.metadata.annotations.as_ref().is_some_and(|keys| keys.contains_key(key));
    if !validation.annotation.is_empty() && !has(&validation.annotation) {
        return Err(Sound::NoAnnotation);
    }
    let mut reason = Sound::NoContainer;
    let named = |c: &&Container| validation.container.is_empty() || c.name == validation.container;
    for container in pod.status.init_container_statuses.iter().flatten().filter(named) {
        match failure(container, validation) {
            Ok((evidence, attempt)) => return Ok(describe(pod, container, evidence, attempt, &settings.label_key)),
            Err(sound) => reason = sound,
        }
    }
    Err(reason)
}

/// Which termination says that the container failed as looked for, and at which attempt.
fn failure(container: &Container, validation: &Validation) -> Result<(Evidence, u32), Sound> {
    let current = container.state.terminated.as_ref();
    if current.is_some_and(|ended| ended.reason == "Completed" || ended.exit_code == 0) {
        return Err(Sound::Recovered);
    }
    let last = container.last_state.terminated.as_ref();
    let matched = match (current.map(|ended| matches(ended, validation)), last.map(|ended| matches(ended, validation)))
    {
        (Some(Ok(())), _) => Ok(Evidence::Current),
        (_, Some(Ok(()))) => Ok(Evidence::Last),
        (Some(Err(sound)), _) | (None, Some(Err(sound))) => Err(sound),
        (None, None) => Err(Sound::NotEnded),
    };
    // The count is that of the attempt which the current state shows; while waiting, that attempt has become the last.
    let moved_on = container.state.running.is_some() || current.is_some();
    matched.map(|evidence| match evidence {
        Evidence::Last if moved_on => (evidence, container.restart_count.saturating_sub(1)),
        _ => (evidence, container.restart_count),
    })
}

fn matches(ended: &Terminated, validation: &Validation) -> Result<(), Sound> {
    if validation.exit_code != 0 && ended.exit_code != validation.exit_code {
        return Err(Sound::OtherExitCode);
    }
    let message = validation.message.trim();
    if !message.is_empty() && ended.message.trim() != message {
        return Err(Sound::OtherMessage);
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
