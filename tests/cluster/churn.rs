//! Pods that come and go while something is done to the node's agent, each looked at from the node.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value, json};

use crate::cluster::Change;
use crate::objects::{injected, is_ready, standalone, uid, unvalidated};
use crate::stage::Stage;
use test_support::runtime::wait::PATIENCE;

/// Between two looks at the disturbance, where no pod changes.
const PAUSE: Duration = Duration::from_millis(50);
/// Pods at a time, until they are gone.
const AT_ONCE: usize = 6;
/// No pod may take longer to start,
const LIMIT: Duration = Duration::from_secs(3);
/// unless so many times what half of the pods take without the plugin is longer: the control plane and whoever disturbs
/// the agent run on the same machine as the pods.
const TIMES_WITHOUT: u32 = 3;
/// So many pods start without the plugin, after some that find a machine which has started none yet.
const WITHOUT: usize = 12;

/// What became of the pods. All are redirected by the time that their application runs.
#[derive(Debug, Default)]
pub(crate) struct Churn {
    /// From its creation until a watch told that all of its containers have started, as Kubernetes' own objective for the
    /// startup of pods has it, but with the init containers; of each pod that was redirected from the start.
    pub(crate) starts: Vec<Duration>,
    /// The same of each pod whose validation has found no redirection. It was mended, and its event says so.
    pub(crate) slipped: Vec<Duration>,
}

impl Churn {
    /// How many there were.
    pub(crate) fn pods(&self) -> usize {
        self.starts.len() + self.slipped.len()
    }

    /// Fails if a pod had to wait for the agent, and not for the machine alone: half of its kind take `without` where there
    /// is no agent.
    pub(crate) fn is_swift(&self, without: Duration) -> Result<()> {
        let limit = LIMIT.max(without * TIMES_WITHOUT);
        let starts = &self.starts;
        ensure!(
            starts.iter().all(|start| *start <= limit),
            "half take {without:?} without the plugin, none may take {limit:?}: {starts:?}"
        );
        Ok(())
    }
}

/// A pod from its creation until it is gone.
#[derive(Debug)]
struct Life {
    since: Instant,
    started: Option<Duration>,
    slipped: bool,
    ends: bool,
}

/// What pods find on their node.
#[derive(Clone, Copy)]
enum On {
    /// The agent's: they are redirected.
    Mesh,
    /// Nobody's: they are not, and nothing validates it.
    Bare,
}

/// The starts of such pods, as many at a time, while the node has neither plugin nor agent.
pub(crate) fn without_plugin(stage: &Stage<'_>) -> Result<Vec<Duration>> {
    let churn = come_and_go(stage, On::Bare, "without", AT_ONCE + WITHOUT, || Ok(()))?;
    Ok(churn.starts.into_iter().skip(AT_ONCE).collect())
}

/// Lets pods of such names come and go until the disturbance is over, and until there were so many.
pub(crate) fn during(
    stage: &Stage<'_>,
    name: &str,
    at_least: usize,
    disturb: impl FnOnce() -> Result<()> + Send,
) -> Result<Churn> {
    come_and_go(stage, On::Mesh, name, at_least, disturb)
}

fn come_and_go(
    stage: &Stage<'_>,
    on: On,
    name: &str,
    at_least: usize,
    disturb: impl FnOnce() -> Result<()> + Send,
) -> Result<Churn> {
    thread::scope(|scope| {
        let disturbing = scope.spawn(disturb);
        let changes = stage.cluster.changes(&stage.path("pods"))?;
        let mut node = Node { stage, on, pods: BTreeMap::new(), churn: Churn::default() };
        let mut made = 0;
        let goes_on = |made: usize| made < at_least || !disturbing.is_finished();
        while goes_on(made) || !node.pods.is_empty() {
            while node.pods.len() < AT_ONCE && goes_on(made) {
                node.create(format!("{name}-{made}"))?;
                made += 1;
            }
            match changes.next(PAUSE)? {
                Some(Change::Is(at, pod)) => node.look(at, &pod)?,
                Some(Change::Gone(pod)) => node.gone(&pod)?,
                None => {}
            }
            let late = node.pods.iter().find(|(_, life)| life.since.elapsed() > PATIENCE);
            ensure!(late.is_none(), "neither ready nor gone after {PATIENCE:?}: {late:?}");
        }
        disturbing.join().map_err(|_| anyhow!("the disturbance has panicked"))??;
        let failed = events(stage, |event| event["reason"] == "FailedCreatePodSandBox")?;
        ensure!(failed.is_empty(), "sandboxes have failed: {failed:#?}");
        Ok(node.churn)
    })
}

/// The pods that are there now, and what became of those that have been.
struct Node<'s> {
    stage: &'s Stage<'s>,
    on: On,
    pods: BTreeMap<String, Life>,
    churn: Churn,
}

impl Node<'_> {
    fn create(&mut self, name: String) -> Result<()> {
        let mut pod = match self.on {
            On::Mesh => injected(),
            On::Bare => unvalidated(injected()),
        };
        pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
        let since = Instant::now();
        self.stage.create("pods", &standalone(&name, pod))?;
        self.pods.insert(name, Life { since, started: None, slipped: false, ends: false });
        Ok(())
    }

    /// Looks at a pod that has changed. Once it is ready, it must be redirected where there is a mesh, and goes.
    fn look(&mut self, at: Instant, pod: &Value) -> Result<()> {
        let name = name_of(pod)?;
        let Some(life) = self.pods.get_mut(name) else { return Ok(()) };
        life.slipped |= has_failed(pod);
        if life.started.is_none() && has_started(pod) {
            life.started = Some(at.saturating_duration_since(life.since));
        }
        if life.ends || !is_ready(pod) {
            return Ok(());
        }
        if matches!(self.on, On::Mesh) {
            self.stage.redirected(pod)?;
        }
        if life.slipped {
            self.stage.cluster.until("an event about the mended pod", |_| told(self.stage, pod))?;
        }
        let starts = if life.slipped { &mut self.churn.slipped } else { &mut self.churn.starts };
        starts.push(life.started.context("ready before it has started")?);
        life.ends = true;
        self.stage.cluster.delete(&self.stage.path(&format!("pods/{name}"))).map(drop)
    }

    /// Its place is free for another.
    fn gone(&mut self, pod: &Value) -> Result<()> {
        let life = self.pods.remove(name_of(pod)?);
        ensure!(life.is_none_or(|life| life.ends), "somebody has deleted a pod: {}", pod["status"]);
        Ok(())
    }
}

fn name_of(pod: &Value) -> Result<&str> {
    pod["metadata"]["name"].as_str().context("a name")
}

/// Have all of its containers?
fn has_started(pod: &Value) -> bool {
    let containers = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
    let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    statuses.filter(|status| status["started"] == true).count() == containers
}

/// Has its validation ever failed? What it did not see was not there.
fn has_failed(pod: &Value) -> bool {
    let statuses = pod["status"]["initContainerStatuses"].as_array().into_iter().flatten();
    statuses.into_iter().any(|status| {
        let exit = &status["state"]["terminated"]["exitCode"];
        status["restartCount"] != 0 || !(exit.is_null() || *exit == 0)
    })
}

/// Nobody is left to find out by himself that a pod has been without redirection.
fn told(stage: &Stage<'_>, pod: &Value) -> Result<()> {
    let about = |event: &Value| event["involvedObject"]["uid"] == uid(pod) && event["reason"] == "RepairBrokenPod";
    ensure!(!events(stage, about)?.is_empty(), "{}", pod["status"]);
    Ok(())
}

fn events(stage: &Stage<'_>, holds: impl Fn(&Value) -> bool) -> Result<Vec<Value>> {
    let all = stage.get("events")?;
    Ok(all["items"].as_array().into_iter().flatten().filter(|event| holds(event)).cloned().collect())
}
