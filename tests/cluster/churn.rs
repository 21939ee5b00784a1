//! Creates and deletes pods while an action disturbs the node's agent, and checks the redirection of each pod from the
//! node.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value, json};

use crate::cluster::Change;
use crate::objects::{injected, is_ready, standalone, uid, unvalidated};
use crate::stage::Stage;
use test_support::runtime::wait::TIMEOUT;

/// The maximum wait for a pod event, after which the loop checks whether the disturbance has ended.
const PAUSE: Duration = Duration::from_millis(50);
/// The number of pods that exist at once.
const AT_ONCE: usize = 6;
/// The number of pods measured without the plugin. The first [`AT_ONCE`] pods, which start on a cold machine, are
/// created in addition and not measured.
const WITHOUT: usize = 12;

/// The start times of all pods. If the agent is installed, each pod was redirected when it became ready.
#[derive(Debug, Default)]
pub(crate) struct Churn {
    /// The time from a pod's creation until the watch showed all of its containers started, for each pod whose
    /// validation never failed. This is how Kubernetes defines its objective for pod startup latency, except that init
    /// containers are included.
    pub(crate) starts: Vec<Duration>,
    /// The start times of pods whose validation failed at first. For each of them the controller has recorded the event
    /// of its repair.
    pub(crate) repaired: Vec<Duration>,
}

impl Churn {
    /// Returns the number of pods.
    pub(crate) fn pods(&self) -> usize {
        self.starts.len() + self.repaired.len()
    }
}

/// What the watch has shown of a pod since its creation.
#[derive(Debug)]
struct Life {
    since: Instant,
    started: Option<Duration>,
    failed: bool,
    deleted: bool,
}

/// The state of the node on which pods start.
#[derive(Clone, Copy)]
enum NodeState {
    /// The agent is installed: pods are redirected.
    WithAgent,
    /// No agent is installed: pods are not redirected, and their validation is off.
    WithoutAgent,
}

/// Measures the start times of pods while the node has neither plugin nor agent.
pub(crate) fn without_plugin(stage: &Stage<'_>) -> Result<Vec<Duration>> {
    let churn = create_and_delete(stage, NodeState::WithoutAgent, "without", AT_ONCE + WITHOUT, || Ok(()))?;
    Ok(churn.starts.into_iter().skip(AT_ONCE).collect())
}

/// Creates and deletes pods named `NAME-0`, `NAME-1`, … until the disturbance has ended and at least `at_least` pods
/// were created.
pub(crate) fn during(
    stage: &Stage<'_>,
    name: &str,
    at_least: usize,
    disturb: impl FnOnce() -> Result<()> + Send,
) -> Result<Churn> {
    create_and_delete(stage, NodeState::WithAgent, name, at_least, disturb)
}

fn create_and_delete(
    stage: &Stage<'_>,
    state: NodeState,
    name: &str,
    at_least: usize,
    disturb: impl FnOnce() -> Result<()> + Send,
) -> Result<Churn> {
    thread::scope(|scope| {
        let disturbing = scope.spawn(disturb);
        let changes = stage.cluster.changes(&stage.path("pods"))?;
        let mut node = Node { stage, state, pods: BTreeMap::new(), churn: Churn::default() };
        let mut created = 0;
        let continues = |created: usize| created < at_least || !disturbing.is_finished();
        while continues(created) || !node.pods.is_empty() {
            while node.pods.len() < AT_ONCE && continues(created) {
                node.create(format!("{name}-{created}"))?;
                created += 1;
            }
            match changes.next(PAUSE)? {
                Some(Change::Applied(at, pod)) => node.handle_change(at, &pod)?,
                Some(Change::Deleted(pod)) => node.handle_deletion(&pod)?,
                None => {}
            }
            let late = node.pods.iter().find(|(_, life)| life.since.elapsed() > TIMEOUT);
            ensure!(late.is_none(), "a pod is neither ready nor deleted after {TIMEOUT:?}: {late:?}");
        }
        disturbing.join().map_err(|_| anyhow!("the thread of the disturbance has panicked"))??;
        let failed = events(stage, |event| event["reason"] == "FailedCreatePodSandBox")?;
        ensure!(failed.is_empty(), "sandboxes were not created: {failed:#?}");
        Ok(node.churn)
    })
}

/// The pods that exist on the node, and the measurements of those that were deleted.
struct Node<'s> {
    stage: &'s Stage<'s>,
    state: NodeState,
    pods: BTreeMap<String, Life>,
    churn: Churn,
}

impl Node<'_> {
    fn create(&mut self, name: String) -> Result<()> {
        let mut pod = match self.state {
            NodeState::WithAgent => injected(),
            NodeState::WithoutAgent => unvalidated(injected()),
        };
        pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
        let since = Instant::now();
        self.stage.create("pods", &standalone(&name, pod))?;
        self.pods.insert(name, Life { since, started: None, failed: false, deleted: false });
        Ok(())
    }

    /// Handles a change of a pod. If the pod has become ready, checks its redirection, records its start time and
    /// deletes it.
    fn handle_change(&mut self, at: Instant, pod: &Value) -> Result<()> {
        let name = name_of(pod)?;
        let Some(life) = self.pods.get_mut(name) else { return Ok(()) };
        life.failed |= has_failed(pod);
        if life.started.is_none() && has_started(pod) {
            life.started = Some(at.saturating_duration_since(life.since));
        }
        if life.deleted || !is_ready(pod) {
            return Ok(());
        }
        if matches!(self.state, NodeState::WithAgent) {
            self.stage.redirected(pod)?;
        }
        if life.failed {
            self.stage.cluster.until("an event about the repaired pod", |_| has_event(self.stage, pod))?;
        }
        let starts = if life.failed { &mut self.churn.repaired } else { &mut self.churn.starts };
        starts.push(life.started.context("the pod is ready before its containers have started")?);
        life.deleted = true;
        self.stage.cluster.delete(&self.stage.path(&format!("pods/{name}"))).map(drop)
    }

    /// Handles the deletion of a pod; fails if another client has deleted it.
    fn handle_deletion(&mut self, pod: &Value) -> Result<()> {
        let life = self.pods.remove(name_of(pod)?);
        ensure!(life.is_none_or(|life| life.deleted), "another client has deleted a pod: {}", pod["status"]);
        Ok(())
    }
}

fn name_of(pod: &Value) -> Result<&str> {
    pod["metadata"]["name"].as_str().context("a name")
}

/// Whether all of the pod's containers have started.
fn has_started(pod: &Value) -> bool {
    let containers = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
    let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    statuses.filter(|status| status["started"] == true).count() == containers
}

/// Whether validation has ever failed in the pod.
fn has_failed(pod: &Value) -> bool {
    let statuses = pod["status"]["initContainerStatuses"].as_array().into_iter().flatten();
    statuses.into_iter().any(|status| {
        let exit = &status["state"]["terminated"]["exitCode"];
        status["restartCount"] != 0 || !(exit.is_null() || *exit == 0)
    })
}

/// Fails unless the pod has the event of its repair.
fn has_event(stage: &Stage<'_>, pod: &Value) -> Result<()> {
    let about = |event: &Value| event["involvedObject"]["uid"] == uid(pod) && event["reason"] == "RepairBrokenPod";
    ensure!(!events(stage, about)?.is_empty(), "{}", pod["status"]);
    Ok(())
}

fn events(stage: &Stage<'_>, holds: impl Fn(&Value) -> bool) -> Result<Vec<Value>> {
    let all = stage.get("events")?;
    Ok(all["items"].as_array().into_iter().flatten().filter(|event| holds(event)).cloned().collect())
}
