//! The agent on a real node: installation, restoration of an overwritten chain, replacement of the agent, removal.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};

use crate::account::is_allowed;
use crate::agent::{Agent, DAEMON_SET_ALONE, EVERYTHING, IMAGES};
use crate::chain::NETWORK;
use crate::churn::{self, Churn};
use crate::figures;
use crate::objects::{deployment, injected, is_ready, plain, standalone, uid};
use crate::rights::USER;
use crate::stage::{Case, Scope, Stage};
use crate::writer;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "the_manifests_install_and_replace_what_came_before",
        namespace: "install",
        scope: Scope::Gate,
        body: install,
    },
    Case { name: "an_overwritten_chain_is_restored", namespace: "restore", scope: Scope::Gate, body: restore },
    Case {
        name: "every_pod_is_redirected_or_repaired_while_the_agent_and_the_chain_are_replaced",
        namespace: "replace",
        scope: Scope::Gate,
        body: replace,
    },
    Case {
        name: "deleting_the_agent_removes_its_files_and_its_chain_entry",
        namespace: "remove",
        scope: Scope::Full,
        body: remove,
    },
];

/// The number of times that another writer replaces the chain while the agent runs.
const OVERWRITES: usize = 7;

/// Installs the agent from the manifests. In the manifests' repair mode, it must replace a pod that started without redirection; it must
/// have no rights beyond those of this mode.
pub(crate) fn install(stage: &Stage<'_>) -> Result<()> {
    stage.create("deployments", &deployment("web", &injected()))?;
    let broken = stage.broken()?;
    let agent = Agent::install(stage)?;
    let other = stage.pod_that("another pod is ready", |pod| is_ready(pod) && uid(pod) != uid(&broken))?;
    stage.redirected(&other)?;
    for request in ["delete pods", "patch pods", "patch pods/status", "create pods", "patch nodes", "get secrets"] {
        assert!(!is_allowed(stage, USER, request)?, "{request}");
    }
    figures::print_durations("DaemonSet ready after the plugin was in the chain", &[agent.ready_after]);
    Ok(())
}

fn restore(stage: &Stage<'_>) -> Result<()> {
    let agent = Agent::install(stage)?;
    for _ in 0..3 {
        fs::write(NETWORK, &agent.original)?;
        stage.cluster.until("the chain is restored", |_| agent.is_chained())?;
    }
    stage.create("pods", &standalone("web", injected()))?;
    let pod = stage.pod_that("the pod is ready", is_ready)?;
    stage.redirected(&pod)
}

/// Replaces the agent's image, pod and process; then lets another writer replace the chain; then does both at once. Replacing the agent
/// alone must never leave the chain without the plugin. Pods that start after the other writer removed the plugin and before the agent
/// restores it must be repaired, with an event.
pub(crate) fn replace(stage: &Stage<'_>) -> Result<()> {
    let without = churn::without_plugin(stage)?;
    let agent = Agent::install_chart(stage, &["repair.mode=repair"])?;
    let over = AtomicBool::new(false);
    let (replaced, gap) = thread::scope(|scope| {
        let watching = scope.spawn(|| longest_gap(&agent, &over));
        let replaced = churn::during(stage, "replaced", 20, || replacements(&agent, IMAGES[1]));
        over.store(true, Ordering::Relaxed);
        (replaced, watching.join())
    });
    let (replaced, gap) = (replaced?, gap.map_err(|_| anyhow!("the thread that observes the chain has panicked"))?);
    assert_eq!(gap, Duration::ZERO, "the longest time without the plugin or its chain entry");
    assert_eq!(replaced.repaired.len(), 0, "pods without redirection, although the chain had no gap");

    let mut restored_after = Vec::new();
    let overwritten = churn::during(stage, "overwritten", 20, || {
        restored_after = writer::overwrite(&agent, |times| times < OVERWRITES)?;
        Ok(())
    })?;
    let over = AtomicBool::new(false);
    let (both, gaps) = thread::scope(|scope| {
        let writing = scope.spawn(|| writer::overwrite(&agent, |_| !over.load(Ordering::Relaxed)));
        let both = churn::during(stage, "both", 20, || replacements(&agent, IMAGES[0]));
        over.store(true, Ordering::Relaxed);
        (both, writing.join())
    });
    let (both, gaps) = (both?, gaps.map_err(|_| anyhow!("the writer has panicked"))??);

    figures::print_durations("without the plugin: pod starts", &without);
    figures::print_against(&without, "agent replaced: pod starts", &replaced.starts);
    figures::print_durations("chain overwritten: time without the plugin", &restored_after);
    figures::print_against(&without, "chain overwritten: pod starts", &overwritten.starts);
    figures::print_durations("chain overwritten: starts of repaired pods", &overwritten.repaired);
    figures::print_durations("both: time without the plugin", &gaps);
    figures::print_against(&without, "both: pod starts", &both.starts);
    figures::print_durations("both: starts of repaired pods", &both.repaired);
    let pods = [&replaced, &overwritten, &both].map(Churn::pods).iter().sum::<usize>();
    ensure!(pods >= 60, "too few pods for a conclusion: {pods}");
    Ok(())
}

/// Rolls the agent to an image, deletes its pod, and kills its process.
fn replacements(agent: &Agent<'_>, image: &str) -> Result<()> {
    agent.roll(image)?;
    agent.delete_pod()?;
    agent.kill()
}

/// Checks the node until `over` is set. Returns the longest time in which the plugin's binary or its chain entry was
/// missing.
pub(crate) fn longest_gap(agent: &Agent<'_>, over: &AtomicBool) -> Duration {
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

/// Deletes the DaemonSet, once alone and once with its roles. In both cases the agent must leave nothing on the node, and pods must start
/// and end afterwards.
pub(crate) fn remove(stage: &Stage<'_>) -> Result<()> {
    removed(stage, "daemonset", DAEMON_SET_ALONE)?;
    removed(stage, "everything", EVERYTHING)
}

fn removed(stage: &Stage<'_>, name: &str, args: &[&str]) -> Result<()> {
    let agent = Agent::install(stage)?;
    let [old, new] = ["old", "new"].map(|age| format!("{name}-{age}"));
    stage.create("pods", &standalone(&old, injected()))?;
    stage.pod_that("the pod is ready", is_ready)?;
    agent.delete(args)?;
    assert_eq!(agent.leftovers()?, Vec::<String>::new(), "{name}");

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
