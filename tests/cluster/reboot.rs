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
use crate::objects::{injected, is_broken, is_ready, plain, standalone, uid, unvalidated};
use crate::stage::{Case, Scope, Stage};

pub(crate) const CASES: &[Case] = &[Case {
    name: "pods_restart_redirected_and_without_long_delay_after_a_reboot",
    namespace: "reboot",
    scope: Scope::Gate,
    body: reboots,
}];

pub(crate) const CASES_OF_CONTAINERD_2: &[Case] = &[Case {
    name: "pods_restart_redirected_and_without_long_delay_after_a_reboot_on_containerd_2",
    namespace: "reboot",
    scope: Scope::Gate,
    body: reboots,
}];

/// The number of pods outside of the mesh, which is also the number of pods in the mesh.
const OF_A_KIND: usize = 10;
/// The maximum time by which the plugin delays the last pod after a reboot. One attempt of [`ATTEMPTS`] must meet it.
const DELAY: Duration = Duration::from_secs(5);
const ATTEMPTS: usize = 3;

fn reboots(stage: &Stage<'_>) -> Result<()> {
    runtime_is_as_named(stage)?;
    let without = {
        let pods = create(stage, || unvalidated(injected()))?;
        let took = reboot(stage, &pods)?;
        delete(stage)?;
        took
    };
    let _agent = Agent::install(stage)?;
    let mut pods = create(stage, injected)?;
    let mut with = Vec::new();
    while with.len() < ATTEMPTS && with.iter().all(|took| *took > without + DELAY) {
        with.push(reboot(stage, &pods)?);
        let after = stage.pods()?;
        for pod in after.iter().filter(|pod| is_meshed(pod)) {
            ensure!(!is_broken(pod), "the pod was not redirected from the start: {}", pod["status"]);
            stage.redirected(pod)?;
        }
        pods = after;
    }
    let seconds = |took: &Duration| format!("{:.1} s", took.as_secs_f64());
    let with_plugin = with.iter().map(seconds).collect::<Vec<_>>().join(", ");
    figures::print(&format!(
        "reboot until all pods run: {} without the plugin, {with_plugin} with it",
        seconds(&without)
    ));
    ensure!(with.iter().any(|took| *took <= without + DELAY), "without the plugin {without:?}, with it {with:?}");
    Ok(())
}

/// Fails unless the node has the container runtime and the CNI version that [`Runtime::here`] names.
fn runtime_is_as_named(stage: &Stage<'_>) -> Result<()> {
    let runtime = Runtime::here().context("this program runs outside of a cluster")?;
    let version = stage.cluster.cri.version()?;
    let number = version.rsplit(' ').next().unwrap_or_default().trim_start_matches('v');
    ensure!((runtime == Runtime::Containerd2) == number.starts_with("2."), "{runtime:?} is {version}");
    let network: Value = serde_json::from_str(&fs::read_to_string(NETWORK)?)?;
    ensure!(network["cniVersion"] == runtime.cni_version(), "{network}");
    Ok(())
}

/// Creates [`OF_A_KIND`] pods outside of the mesh and as many in it, and waits until all are ready.
fn create(stage: &Stage<'_>, meshed: fn() -> Value) -> Result<Vec<Value>> {
    for number in 0..OF_A_KIND {
        stage.create("pods", &standalone(&format!("plain-{number}"), plain()))?;
        stage.create("pods", &standalone(&format!("meshed-{number}"), meshed()))?;
    }
    stage.cluster.until("all pods are ready", |_| {
        let pods = stage.pods()?;
        ensure!(pods.len() == 2 * OF_A_KIND && pods.iter().all(is_ready), "{}", summary(&pods));
        Ok(pods)
    })
}

fn delete(stage: &Stage<'_>) -> Result<()> {
    stage.cluster.delete(&stage.path("pods"))?;
    stage.cluster.until("no pod is left", |_| {
        let pods = stage.pods()?;
        ensure!(pods.is_empty(), "{}", summary(&pods));
        Ok(())
    })
}

/// Reboots the node and waits until the same pods run in new containers. Returns the time that this took from the
/// kubelet's start.
fn reboot(stage: &Stage<'_>, before: &[Value]) -> Result<Duration> {
    let booted = machine::reboot(stage.cluster)?;
    stage.cluster.until("all pods run again", |_| {
        let pods = stage.pods()?;
        let runs = |pod: &Value| {
            let former = before.iter().find(|former| uid(former) == uid(pod));
            is_ready(pod)
                && former.is_some_and(|former| containers(former).iter().all(|id| !containers(pod).contains(id)))
        };
        let waiting: Vec<Value> = pods.iter().filter(|pod| !runs(pod)).cloned().collect();
        ensure!(
            waiting.is_empty() && pods.len() == before.len(),
            "{} of {}: {}",
            waiting.len(),
            pods.len(),
            summary(&waiting)
        );
        Ok(())
    })?;
    let took = booted.elapsed();
    let node = stage.cluster.get(&format!("/api/v1/nodes/{NODE}"))?;
    let boot_id = fs::read_to_string(machine::BOOT_ID)?;
    ensure!(
        node["status"]["nodeInfo"]["bootID"] == boot_id.trim(),
        "the kubelet has not reported the new boot ID: {node}"
    );
    Ok(took)
}

fn is_meshed(pod: &Value) -> bool {
    pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("meshed"))
}

/// The IDs of the pod's containers.
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
