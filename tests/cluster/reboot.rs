//! Tests a reboot of the node: chain entry and plugin are on disk, while the agent and its run directory do not exist
//! yet when pods start.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::agent::Agent;
use crate::chain::NETWORK;
use crate::cluster::NODE;
use crate::enter::Runtime;
use crate::figures;
use crate::machine;
use crate::objects::{injected, is_broken, is_ready, plain, standalone, uid};
use crate::stage::{Case, Scope, Stage};

pub(crate) const CASES: &[Case] =
    &[Case { name: "pods_restart_redirected_after_a_reboot", namespace: "reboot", scope: Scope::Gate, body: reboots }];

pub(crate) const CASES_OF_CRIO: &[Case] = &[Case {
    name: "pods_restart_redirected_after_a_reboot_on_crio",
    namespace: "reboot",
    scope: Scope::Full,
    body: reboots,
}];

pub(crate) const CASES_OF_CONTAINERD_2: &[Case] = &[Case {
    name: "pods_restart_redirected_after_a_reboot_on_containerd_2",
    namespace: "reboot",
    scope: Scope::Gate,
    body: reboots,
}];

/// The number of pods outside of the mesh, which is also the number of pods in the mesh.
const OF_A_KIND: usize = 10;

fn reboots(stage: &Stage<'_>) -> Result<()> {
    runtime_is_as_named(stage)?;
    let _agent = Agent::install(stage)?;
    let before = create(stage)?;
    let took = reboot(stage, &before)?;
    for pod in stage.pods()?.iter().filter(|pod| is_meshed(pod)) {
        ensure!(!is_broken(pod), "the pod was not redirected from the start: {}", pod["status"]);
        stage.redirected(pod)?;
    }
    figures::print(&format!(
        "reboot until all pods run: {:.1} s outside of the mesh, {:.1} s in it",
        took.plain.as_secs_f64(),
        took.meshed.as_secs_f64()
    ));
    Ok(())
}

/// Fails unless the node has the container runtime and the CNI version that [`Runtime::here`] names.
fn runtime_is_as_named(stage: &Stage<'_>) -> Result<()> {
    let runtime = Runtime::here().context("this program runs outside of a cluster")?;
    let version = stage.cluster.cri.version()?;
    let number = version.rsplit(' ').next().unwrap_or_default().trim_start_matches('v');
    ensure!((runtime == Runtime::Containerd2) == number.starts_with("2."), "{runtime:?} is {version}");
    ensure!(version.starts_with(if runtime == Runtime::Crio { "cri-o " } else { "containerd " }), "{version}");
    let network: Value = serde_json::from_str(&fs::read_to_string(NETWORK)?)?;
    ensure!(network["cniVersion"] == runtime.cni_version(), "{network}");
    Ok(())
}

/// Creates [`OF_A_KIND`] pods outside of the mesh and as many in it, and waits until all are ready.
fn create(stage: &Stage<'_>) -> Result<Vec<Value>> {
    for number in 0..OF_A_KIND {
        stage.create("pods", &standalone(&format!("plain-{number}"), plain()))?;
        stage.create("pods", &standalone(&format!("meshed-{number}"), injected()))?;
    }
    stage.cluster.until("all pods are ready", |_| {
        let pods = stage.pods()?;
        ensure!(pods.len() == 2 * OF_A_KIND && pods.iter().all(is_ready), "{}", summary(&pods));
        Ok(pods)
    })
}

/// The times from the kubelet's start until all pods of a kind run.
#[derive(Default)]
struct Times {
    plain: Duration,
    meshed: Duration,
}

/// Reboots the node and waits until the same pods run in new containers.
fn reboot(stage: &Stage<'_>, before: &[Value]) -> Result<Times> {
    let booted = machine::reboot(stage.cluster)?;
    let mut took = Times::default();
    stage.cluster.until("all pods run again", |_| {
        let pods = stage.pods()?;
        let waiting: Vec<Value> = pods.iter().filter(|pod| !runs_again(pod, before)).cloned().collect();
        for (after, meshed) in [(&mut took.plain, false), (&mut took.meshed, true)] {
            if after.is_zero() && !waiting.iter().any(|pod| is_meshed(pod) == meshed) {
                *after = booted.elapsed();
            }
        }
        let counts = format!("{} of {}", waiting.len(), pods.len());
        ensure!(waiting.is_empty() && pods.len() == before.len(), "{counts}: {}", summary(&waiting));
        Ok(())
    })?;
    let node = stage.cluster.get(&format!("/api/v1/nodes/{NODE}"))?;
    let boot_id = fs::read_to_string(machine::BOOT_ID)?;
    let reported = &node["status"]["nodeInfo"]["bootID"];
    ensure!(reported == boot_id.trim(), "the kubelet has not reported the new boot ID: {node}");
    Ok(took)
}

/// Whether the pod existed before the reboot and is ready with containers that did not.
fn runs_again(pod: &Value, before: &[Value]) -> bool {
    let former = before.iter().find(|former| uid(former) == uid(pod));
    is_ready(pod) && former.is_some_and(|former| containers(former).iter().all(|id| !containers(pod).contains(id)))
}

fn is_meshed(pod: &Value) -> bool {
    pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("meshed"))
}

/// Returns the IDs of the pod's containers.
fn containers(pod: &Value) -> Vec<&str> {
    let kinds = ["initContainerStatuses", "containerStatuses"];
    let statuses = kinds.iter().filter_map(|kind| pod["status"][kind].as_array()).flatten();
    statuses.filter_map(|status| status["containerID"].as_str()).collect()
}

fn summary(pods: &[Value]) -> String {
    let lines = pods.iter().map(|pod| {
        let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
        let states: Vec<String> = statuses.map(|status| status["state"].to_string()).collect();
        format!("\n{}: {}", pod["metadata"]["name"], states.join(", "))
    });
    lines.collect()
}
