//! Pods that come and go while something is done to the node's agent, each looked at from the node.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value, json};

use crate::objects::{injected, is_ready, standalone, uid, unvalidated};
use crate::runtime::wait::PATIENCE;
use crate::stage::Stage;

/// Pods at a time.
const AT_ONCE: usize = 6;
/// No pod may take longer to become ready,
const LIMIT: Duration = Duration::from_secs(3);
/// unless so many times what half of the pods take without the plugin is longer: the control plane and whoever disturbs
/// the agent run on the same machine as the pods.
const TIMES_WITHOUT: u32 = 3;
/// So many pods start without the plugin, after some that find a machine which has started none yet.
const WITHOUT: usize = 12;

/// What became of the pods. All are redirected by the time that their application runs.
#[derive(Debug, Default)]
pub(crate) struct Churn {
    /// From its creation until it was ready, of each pod that was redirected from the start.
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

/// A pod that is not ready yet.
struct Starting {
    since: Instant,
    slipped: bool,
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
        let (mut churn, mut starting) = (Churn::default(), BTreeMap::new());
        let goes_on = |churn: &Churn| churn.pods() < at_least || !disturbing.is_finished();
        while goes_on(&churn) || !starting.is_empty() {
            while starting.len() < AT_ONCE && goes_on(&churn) {
                let name = format!("{name}-{}", churn.pods() + starting.len());
                create(stage, on, &name)?;
                starting.insert(name, Starting { since: Instant::now(), slipped: false });
            }
            look(stage, on, &mut starting, &mut churn)?;
            thread::sleep(Duration::from_millis(50));
        }
        disturbing.join().map_err(|_| anyhow!("the disturbance has panicked"))??;
        let failed = events(stage, |event| event["reason"] == "FailedCreatePodSandBox")?;
        ensure!(failed.is_empty(), "sandboxes have failed: {failed:#?}");
        Ok(churn)
    })
}

fn create(stage: &Stage<'_>, on: On, name: &str) -> Result<()> {
    let mut pod = match on {
        On::Mesh => injected(),
        On::Bare => unvalidated(injected()),
    };
    pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
    stage.create("pods", &standalone(name, pod)).map(drop)
}

/// Looks at each pod once. Those that are ready must be redirected where there is a mesh, and go.
fn look(stage: &Stage<'_>, on: On, starting: &mut BTreeMap<String, Starting>, churn: &mut Churn) -> Result<()> {
    for pod in stage.pods()? {
        let name = pod["metadata"]["name"].as_str().context("a name")?;
        let Some(known) = starting.get_mut(name) else { continue };
        known.slipped |= has_failed(&pod);
        ensure!(known.since.elapsed() < PATIENCE, "not ready after {PATIENCE:?}: {}", pod["status"]);
        if !is_ready(&pod) {
            continue;
        }
        let (took, slipped) = (known.since.elapsed(), known.slipped);
        starting.remove(name);
        if matches!(on, On::Mesh) {
            stage.redirected(&pod)?;
        }
        if slipped {
            stage.cluster.until("an event about the mended pod", |_| told(stage, &pod))?;
        }
        if slipped { &mut churn.slipped } else { &mut churn.starts }.push(took);
        stage.cluster.delete(&stage.path(&format!("pods/{name}")))?;
    }
    Ok(())
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
