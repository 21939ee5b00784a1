//! The agent on a real node: it installs, keeps what it has installed through everything that happens to agents, and
//! takes it away when it is to go.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::account::may;
use crate::agent::{Agent, DAEMON_SET_ALONE, EVERYTHING, IMAGES};
use crate::chain::NETWORK;
use crate::churn;
use crate::objects::{deployment, injected, is_ready, plain, standalone, uid};
use crate::stage::{Case, Stage};

pub(crate) const CASES: &[Case] = &[
    Case { states: "the_manifests_install_and_replace_what_came_before", namespace: "install", body: install },
    Case { states: "an_overwritten_chain_is_healed", namespace: "heal", body: heal },
    Case { states: "no_pod_slips_through_while_the_agent_is_replaced", namespace: "replace", body: replace },
    Case { states: "pods_start_redirected_while_the_api_server_is_away", namespace: "outage", body: outage },
    Case { states: "deleting_the_agent_takes_all_of_it_away", namespace: "remove", body: remove },
];

/// Who the agent is for the API server.
const USER: &str = "system:serviceaccount:kube-system:istio-cni";

/// With the manifests' own rights, and the mode that they set.
fn install(stage: &Stage<'_>) -> Result<()> {
    stage.create("deployments", &deployment("web", &injected()))?;
    let broken = stage.broken()?;
    let agent = Agent::install(stage)?;
    let other = stage.pod_that("another pod is ready", |pod| is_ready(pod) && uid(pod) != uid(&broken))?;
    stage.redirected(&other)?;
    for request in ["delete pods", "patch pods", "patch pods/status", "create pods", "patch nodes", "get secrets"] {
        assert!(!may(stage, USER, request)?, "{request}");
    }
    agent.is_chained()
}

fn heal(stage: &Stage<'_>) -> Result<()> {
    let agent = Agent::install(stage)?;
    for _ in 0..3 {
        fs::write(NETWORK, &agent.original)?;
        stage.cluster.until("the chain is healed", |_| agent.is_chained())?;
    }
    stage.create("pods", &standalone("web", injected()))?;
    let pod = stage.pod_that("the pod is ready", is_ready)?;
    stage.redirected(&pod)
}

/// Rolled to another image and back, its pod deleted, its process killed.
fn replace(stage: &Stage<'_>) -> Result<()> {
    let agent = Agent::install(stage)?;
    let over = AtomicBool::new(false);
    let (churn, gap) = thread::scope(|scope| {
        let watching = scope.spawn(|| longest_gap(&agent, &over));
        let churn = churn::during(stage, || {
            for image in [IMAGES[1], IMAGES[0]] {
                agent.roll(image)?;
                agent.delete_pod()?;
                agent.kill()?;
            }
            Ok(())
        });
        over.store(true, Ordering::Relaxed);
        (churn, watching.join())
    });
    let (churn, gap) = (churn?, gap.map_err(|_| anyhow::anyhow!("the watch has panicked"))?);
    assert_eq!(gap, Duration::ZERO, "for so long the plugin was not in the chain, or not there");
    ensure!(churn.pods >= 20, "too few pods to tell anything: {churn:?}");
    Ok(())
}

/// The longest time in which the plugin was not in the chain, or not there.
fn longest_gap(agent: &Agent<'_>, over: &AtomicBool) -> Duration {
    let (mut longest, mut since) = (Duration::ZERO, None::<Instant>);
    while !over.load(Ordering::Relaxed) {
        match (agent.is_chained(), since) {
            (Ok(()), _) => since = None,
            (Err(_), None) => since = Some(Instant::now()),
            (Err(_), Some(start)) => longest = longest.max(start.elapsed()),
        }
        thread::sleep(Duration::from_millis(1));
    }
    longest
}

/// A pod that is bound to the node gets another sandbox while nobody but the agent knows it.
fn outage(stage: &Stage<'_>) -> Result<()> {
    let _agent = Agent::install(stage)?;
    stage.create("pods", &standalone("web", injected()))?;
    let pod = stage.pod_that("the pod is ready", is_ready)?;
    let before = stage.sandbox(&pod)?;
    let away = stage.cluster.without("kube-apiserver")?;
    stage.cluster.cri.stop_sandbox(&before)?;
    let (after, address) =
        stage.cluster.until("the pod has another sandbox", |_| stage.running_sandbox(&pod, &before))?;
    stage.cluster.until("its application is redirected to", |_| {
        let trace = stage.ask_at(address)?;
        ensure!(trace.hops().first().is_some_and(|(who, _)| *who == "istio-proxy/inbound"), "{trace}");
        Ok(())
    })?;
    drop(away);
    stage.cluster.until("the API server knows", |_| {
        let pod = stage.get("pods/web")?;
        ensure!(is_ready(&pod) && pod["status"]["podIP"] == address.to_string(), "{}", pod["status"]);
        Ok(())
    })?;
    assert_ne!(after, before);
    Ok(())
}

/// By its DaemonSet alone, and with its rights: neither leaves anything, nor keeps a pod from ending or starting.
fn remove(stage: &Stage<'_>) -> Result<()> {
    removed(stage, "daemonset", DAEMON_SET_ALONE)?;
    removed(stage, "everything", EVERYTHING)
}

fn removed(stage: &Stage<'_>, how: &str, what: &[&str]) -> Result<()> {
    let agent = Agent::install(stage)?;
    let [old, new] = ["old", "new"].map(|age| format!("{how}-{age}"));
    stage.create("pods", &standalone(&old, injected()))?;
    stage.pod_that("the pod is ready", is_ready)?;
    agent.delete(what)?;
    assert_eq!(agent.leftovers()?, Vec::<String>::new(), "{how}");

    stage.cluster.delete(&stage.path(&format!("pods/{old}")))?;
    stage.create("pods", &standalone(&new, plain()))?;
    stage.cluster.until("one pod has ended, the other is ready", |_| {
        let pods = stage.pods()?;
        ensure!(pods.len() == 1 && pods[0]["metadata"]["name"] == new.as_str() && is_ready(&pods[0]), "{pods:#?}");
        Ok(())
    })?;
    stage.cluster.delete(&stage.path(&format!("pods/{new}")))?;
    stage.cluster.until("no pod is left", |_| {
        ensure!(stage.pods()?.is_empty());
        Ok(())
    })
}
