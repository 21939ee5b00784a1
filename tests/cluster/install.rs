//! The agent on a real node: it installs, keeps what it has installed through everything that happens to agents, and
//! takes it away when it is to go.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};

use crate::account::may;
use crate::agent::{Agent, DAEMON_SET_ALONE, EVERYTHING, IMAGES};
use crate::chain::NETWORK;
use crate::churn::{self, Churn};
use crate::figures;
use crate::objects::{deployment, injected, is_ready, plain, standalone, uid};
use crate::rights::USER;
use crate::stage::{Case, Stage};
use crate::writer;

pub(crate) const CASES: &[Case] = &[
    Case { states: "the_manifests_install_and_replace_what_came_before", namespace: "install", body: install },
    Case { states: "an_overwritten_chain_is_healed", namespace: "heal", body: heal },
    Case {
        states: "no_pod_slips_through_while_the_agent_is_replaced_nor_unseen_while_the_chain_is",
        namespace: "replace",
        body: replace,
    },
    Case { states: "deleting_the_agent_takes_all_of_it_away", namespace: "remove", body: remove },
];

/// How often another writer replaces the chain while the agent is there.
const OVERWRITTEN: usize = 7;
/// For so long the plugin may then be missing, two of three times: on a busy machine, whoever heals waits for a processor now
/// and then.
const HEALED: Duration = Duration::from_millis(20);
/// Once the chain has the plugin, pods may be told so; a busy machine takes longer, but not each time.
const READY: Duration = Duration::from_secs(2);

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
    let mut after = vec![agent.ready_after];
    drop(agent);
    while after.len() < 3 && after.iter().all(|took| *took > READY) {
        after.push(Agent::install(stage)?.ready_after);
    }
    figures::of("ready after the plugin was in the chain", &after);
    ensure!(after.iter().any(|took| *took <= READY), "never within {READY:?}: {after:?}");
    Ok(())
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

/// Its image, its pod and its process are replaced, then another writer replaces the chain, then both at once. While the
/// agent is meant to be there, the chain has no gap but the writer's own; what slips through one is mended, and told.
fn replace(stage: &Stage<'_>) -> Result<()> {
    let without = churn::without_plugin(stage)?;
    let half = figures::median(&without).context("not one pod")?;
    let agent = Agent::install_chart(stage, &["repair.mode=repair"])?;
    let over = AtomicBool::new(false);
    let (replaced, gap) = thread::scope(|scope| {
        let watching = scope.spawn(|| longest_gap(&agent, &over));
        let replaced = churn::during(stage, "replaced", 20, || replacements(&agent, IMAGES[1]));
        over.store(true, Ordering::Relaxed);
        (replaced, watching.join())
    });
    let (replaced, gap) = (replaced?, gap.map_err(|_| anyhow!("the watch has panicked"))?);
    assert_eq!(gap, Duration::ZERO, "for so long the plugin was not in the chain, or not there");
    assert_eq!(replaced.slipped.len(), 0, "there was nothing to slip through");

    let mut heals = Vec::new();
    let overwritten = churn::during(stage, "overwritten", 20, || {
        heals = writer::overwrite(&agent, |times| times < OVERWRITTEN)?;
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

    figures::of("without the plugin: pod starts", &without);
    figures::against(&without, "agent replaced: pod starts", &replaced.starts);
    figures::of("chain overwritten: without the plugin", &heals);
    figures::against(&without, "chain overwritten: pod starts", &overwritten.starts);
    figures::of("chain overwritten: starts of pods that were mended", &overwritten.slipped);
    figures::of("both: without the plugin", &gaps);
    figures::against(&without, "both: pod starts", &both.starts);
    figures::of("both: starts of pods that were mended", &both.slipped);
    let pods = [&replaced, &overwritten, &both].map(Churn::pods).iter().sum::<usize>();
    let swift = heals.iter().filter(|gap| **gap <= HEALED).count();
    ensure!(swift * 3 >= OVERWRITTEN * 2, "{swift} of the heals take {HEALED:?} at most: {heals:?}");
    ensure!(pods >= 60, "too few pods to tell anything: {pods}");
    [replaced, overwritten, both].iter().try_for_each(|churn| churn.is_swift(half))
}

/// Rolled to an image, its pod deleted, its process killed.
fn replacements(agent: &Agent<'_>, image: &str) -> Result<()> {
    agent.roll(image)?;
    agent.delete_pod()?;
    agent.kill()
}

/// The longest time in which the plugin was not in the chain, or not there.
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
