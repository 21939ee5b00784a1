//! What the agent and its plugin do without the API server, and with a token that is another by now.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use istio_cni::contract::{KUBECONFIG, RUN_DIR};
use serde_json::{Value, json};

use crate::agent::{Agent, kubectl};
use crate::figures;
use crate::objects::{injected, is_ready, standalone};
use crate::stage::{Case, Stage};

pub(crate) const CASES: &[Case] = &[
    Case { states: "pods_start_redirected_while_the_api_server_is_away", namespace: "outage", body: outage },
    Case { states: "a_new_token_reaches_the_plugin", namespace: "token", body: token },
];

/// For so long the API server is away.
const AWAY: Duration = Duration::from_secs(20);
/// Pods that are bound to the node, but cannot be started before.
const HELD: usize = 6;
/// They need it, and the kubelet tries again and again.
const GATE: &str = "/run/cluster/gate";

/// Pods that have never run get their first sandbox while nobody but the agent knows them; one that has run, another.
fn outage(stage: &Stage<'_>) -> Result<()> {
    let agent = Agent::install(stage)?;
    stage.create("pods", &standalone("ran", injected()))?;
    let ran = stage.pod_that("the pod is ready", is_ready)?;
    let sandbox = stage.sandbox(&ran)?;
    let held = held(stage, &agent)?;

    let away = stage.cluster.without("kube-apiserver")?;
    let since = Instant::now();
    fs::create_dir(GATE)?;
    let mut starts = Vec::new();
    for pod in &held {
        redirected(stage, pod, "")?;
        starts.push(since.elapsed());
    }
    // The others have shown that the agent answers at once. This one shows that it does so after a while, too.
    thread::sleep(AWAY.saturating_sub(since.elapsed()));
    let late = Instant::now();
    stage.cluster.cri.stop_sandbox(&sandbox)?;
    let address = redirected(stage, &ran, &sandbox)?;
    figures::of("API server away: first starts, as the kubelet tries again", &starts);
    figures::of("API server away: another sandbox", &[late.elapsed()]);
    drop(away);
    // After an outage, those that were there hear of nothing for a minute.
    for component in ["kube-controller-manager", "kubelet"] {
        drop(stage.cluster.without(component)?);
    }

    stage.cluster.until("the API server knows", |_| {
        let pods = stage.pods()?;
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        ensure!(ready == HELD + 1, "{ready} of {} pods are ready", pods.len());
        let now = stage.get("pods/ran")?["status"]["podIP"].take();
        ensure!(now == address.to_string(), "{now}");
        Ok(())
    })?;
    fs::remove_dir(GATE)?;
    agent.counts("istio_cni_install_ready", 1)
}

/// Pods that node and agent know, and that cannot be started before there is the gate.
fn held(stage: &Stage<'_>, agent: &Agent<'_>) -> Result<Vec<Value>> {
    for number in 0..HELD {
        let mut pod = injected();
        // Their tokens would be asked for at their start.
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
    // With its own.
    agent.counts("istio_cni_agent_pods", HELD + 2)?;
    let pods = stage.pods()?.into_iter();
    Ok(pods.filter(|pod| pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("held"))).collect())
}

/// The pod's address in its new sandbox, once whoever asks its application meets its sidecar first.
fn redirected(stage: &Stage<'_>, pod: &Value, before: &str) -> Result<IpAddr> {
    let (after, address) =
        stage.cluster.until("the pod has another sandbox", |_| stage.running_sandbox(pod, before))?;
    ensure!(after != before);
    stage.cluster.until("its application is redirected to", |_| {
        let trace = stage.ask_at(address)?;
        ensure!(trace.hops().first().is_some_and(|(who, _)| *who == "istio-proxy/inbound"), "{trace}");
        Ok(address)
    })
}

/// An agent that is started anew requests another token for the plugin.
fn token(stage: &Stage<'_>) -> Result<()> {
    let agent = Agent::install(stage)?;
    let kubeconfig = Path::new(RUN_DIR).join(KUBECONFIG);
    let before = fs::read_to_string(&kubeconfig)?;
    agent.kill()?;
    stage.cluster.until("the kubeconfig is rewritten", |_| {
        ensure!(fs::read_to_string(&kubeconfig)? != before, "it is the same");
        Ok(())
    })?;
    let after = fs::read_to_string(&kubeconfig)?;
    let without_token = |text: &str| text.lines().filter(|line| !line.contains("token:")).map(str::to_owned).collect();
    let [old, new]: [Vec<String>; 2] = [&before, &after].map(|text| without_token(text));
    assert_eq!(new, old, "nothing but the token");
    let path = kubeconfig.to_str().context("a path in UTF-8")?;
    let who = kubectl(&["--kubeconfig", path, "auth", "whoami", "--output=jsonpath={.status.userInfo.username}"])?;
    assert_eq!(who, "system:serviceaccount:kube-system:istio-cni-plugin");
    agent.counts("istio_cni_install_ready", 1)
}
