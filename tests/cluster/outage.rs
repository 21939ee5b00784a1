//! Tests the agent and the plugin during an outage of the API server, and after the plugin's token was replaced.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use contract::{KUBECONFIG, RUN_DIR};
use serde_json::{Value, json};

use crate::agent::{Agent, kubectl};
use crate::figures;
use crate::objects::{injected, is_ready, standalone};
use crate::stage::{Case, PODS_LOGS, Scope, Stage};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "pods_start_redirected_while_the_api_server_is_down",
        namespace: "outage",
        scope: Scope::Full,
        body: outage,
    },
    Case { name: "a_new_token_reaches_the_plugin", namespace: "token", scope: Scope::Full, body: token },
];

/// The number of times that the agent's watch fails during the outage. The agent waits longer after each failure.
const FAILURES: usize = 4;
/// The number of pods that are scheduled to the node before the outage and start only after it has begun.
const HELD: usize = 6;
/// A directory of the node that the held pods mount. The kubelet retries their start until the directory exists.
const GATE: &str = "/run/cluster/gate";

/// Checks that pods are redirected during an outage: pods that have never run get their first sandbox, and a running
/// pod gets another one.
fn outage(stage: &Stage<'_>) -> Result<()> {
    let agent = Agent::install(stage)?;
    stage.create("pods", &standalone("ran", injected()))?;
    let ran = stage.pod_that("the pod is ready", is_ready)?;
    let sandbox = stage.sandbox(&ran)?;
    let held = held(stage, &agent)?;

    let stopped = stage.cluster.stop("kube-apiserver")?;
    let since = Instant::now();
    fs::create_dir(GATE)?;
    let mut starts = Vec::new();
    for pod in &held {
        redirected(stage, pod, "")?;
        starts.push(since.elapsed());
    }
    // The held pods started early in the outage. The pod that already ran gets another sandbox at the end of the
    // outage.
    stage.cluster.until("the agent's watch has failed", |_| watch_has_failed())?;
    let late = Instant::now();
    stage.cluster.cri.stop_sandbox(&sandbox)?;
    let address = redirected(stage, &ran, &sandbox)?;
    figures::print_durations("API server down: first starts, at the kubelet's retries", &starts);
    figures::print_durations("API server down: another sandbox", &[late.elapsed()]);
    drop(stopped);
    // Restarts the components whose watches would otherwise take up to a minute after the outage to reconnect.
    for component in ["kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet"] {
        drop(stage.cluster.stop(component)?);
    }

    stage.cluster.until("all pods are ready and have their new addresses", |_| {
        let pods = stage.pods()?;
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        ensure!(ready == HELD + 1, "{ready} of {} pods are ready", pods.len());
        let now = stage.get("pods/ran")?["status"]["podIP"].take();
        ensure!(now == address.to_string(), "{now}");
        Ok(())
    })?;
    fs::remove_dir(GATE)?;
    agent.wait_for_metric("istio_cni_install_ready", 1)
}

/// Fails unless the log of the agent's container has [`FAILURES`] failures of its watch. During the outage the log can be read only from
/// its file.
fn watch_has_failed() -> Result<()> {
    let output = Command::new("grep")
        .args(["--recursive", "--no-filename", "--fixed-strings", "the watch of this node's pods failed"])
        .arg(PODS_LOGS)
        .output()?;
    let failures = String::from_utf8_lossy(&output.stdout).lines().count();
    ensure!(failures >= FAILURES, "{failures} failures in {PODS_LOGS}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Creates pods that cannot start before [`GATE`] exists, and waits until kubelet and agent have received them.
fn held(stage: &Stage<'_>, agent: &Agent<'_>) -> Result<Vec<Value>> {
    for number in 0..HELD {
        let mut pod = injected();
        // The pods have no token: the kubelet requests tokens from the API server when a pod starts.
        pod["spec"]["automountServiceAccountToken"] = false.into();
        pod["spec"]["volumes"] = json!([{ "name": "gate", "hostPath": { "path": GATE, "type": "Directory" } }]);
        pod["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "gate", "mountPath": "/gate" }]);
        stage.create("pods", &standalone(&format!("held-{number}"), pod))?;
    }
    stage.cluster.until("the kubelet waits for the gate", |_| {
        let events = stage.get("events")?;
        let waiting = events["items"].as_array().into_iter().flatten();
        let waiting = waiting.filter(|event| event["reason"] == "FailedMount").count();
        ensure!(waiting >= HELD, "{events}");
        Ok(())
    })?;
    // The agent's cache has the held pods, the pod that ran before, and the agent's own pod.
    agent.wait_for_metric("istio_cni_agent_pods", HELD + 2)?;
    let pods = stage.pods()?.into_iter();
    Ok(pods.filter(|pod| pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("held"))).collect())
}

/// Waits until the pod has a sandbox other than `before` and a request to its application passes the sidecar first. Returns the pod's new
/// address.
fn redirected(stage: &Stage<'_>, pod: &Value, before: &str) -> Result<IpAddr> {
    let (after, address) =
        stage.cluster.until("the pod has another sandbox", |_| stage.running_sandbox(pod, before))?;
    ensure!(after != before);
    stage.cluster.until("a request to the pod's application passes the sidecar", |_| {
        let trace = stage.ask_at(address)?;
        ensure!(trace.hops().first().is_some_and(|(program, _)| *program == "istio-proxy/inbound"), "{trace}");
        Ok(address)
    })
}

/// A restarted agent must request a new token for the plugin.
fn token(stage: &Stage<'_>) -> Result<()> {
    let agent = Agent::install(stage)?;
    let kubeconfig = Path::new(RUN_DIR).join(KUBECONFIG);
    let before = fs::read_to_string(&kubeconfig)?;
    agent.kill()?;
    stage.cluster.until("the kubeconfig is rewritten", |_| {
        ensure!(fs::read_to_string(&kubeconfig)? != before, "the kubeconfig has not changed");
        Ok(())
    })?;
    let after = fs::read_to_string(&kubeconfig)?;
    let without_token = |text: &str| text.lines().filter(|line| !line.contains("token:")).map(str::to_owned).collect();
    let [old, new]: [Vec<String>; 2] = [&before, &after].map(|text| without_token(text));
    assert_eq!(new, old, "only the token changes");
    let path = kubeconfig.to_str().context("a path in UTF-8")?;
    let user = kubectl(&["--kubeconfig", path, "auth", "whoami", "--output=jsonpath={.status.userInfo.username}"])?;
    assert_eq!(user, "system:serviceaccount:kube-system:istio-cni-plugin");
    agent.wait_for_metric("istio_cni_install_ready", 1)
}
