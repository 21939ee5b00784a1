//! Pods that come and go while something is done to the node's agent, each looked at from the node.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value, json};

use crate::objects::{injected, is_ready, standalone};
use crate::runtime::wait::PATIENCE;
use crate::stage::Stage;

/// Pods at a time.
const AT_ONCE: usize = 6;

/// What became of the pods.
#[derive(Debug)]
pub(crate) struct Churn {
    /// How many there were. All were redirected before their application ran.
    pub(crate) pods: usize,
    /// The longest that one took from its creation until it was ready.
    pub(crate) slowest: Duration,
}

/// Lets pods come and go until the disturbance is over. The first that was not redirected from the start is an error.
pub(crate) fn during(stage: &Stage<'_>, disturb: impl FnOnce() -> Result<()> + Send) -> Result<Churn> {
    thread::scope(|scope| {
        let disturbing = scope.spawn(disturb);
        let mut churn = Churn { pods: 0, slowest: Duration::ZERO };
        let mut starting = BTreeMap::new();
        while !disturbing.is_finished() || !starting.is_empty() {
            while starting.len() < AT_ONCE && !disturbing.is_finished() {
                let name = format!("web-{}", churn.pods);
                let mut pod = injected();
                pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
                stage.create("pods", &standalone(&name, pod))?;
                starting.insert(name, Instant::now());
                churn.pods += 1;
            }
            for pod in stage.pods()? {
                let name = pod["metadata"]["name"].as_str().context("a name")?;
                let Some(created) = starting.get(name).copied() else { continue };
                passed(&pod)?;
                ensure!(created.elapsed() < PATIENCE, "not ready after {PATIENCE:?}: {}", pod["status"]);
                if is_ready(&pod) {
                    stage.redirected(&pod)?;
                    churn.slowest = churn.slowest.max(created.elapsed());
                    starting.remove(name);
                    stage.cluster.delete(&stage.path(&format!("pods/{name}")))?;
                }
            }
            thread::sleep(Duration::from_millis(50));
        }
        disturbing.join().map_err(|_| anyhow!("the disturbance has panicked"))??;
        let events = stage.get("events")?;
        let failed = events["items"].as_array().into_iter().flatten();
        let failed: Vec<&Value> = failed.filter(|event| event["reason"] == "FailedCreatePodSandBox").collect();
        ensure!(failed.is_empty(), "sandboxes have failed: {failed:#?}");
        Ok(churn)
    })
}

/// Fails if a validation of the pod has ever failed: what it did not see was not there.
fn passed(pod: &Value) -> Result<()> {
    let statuses = pod["status"]["initContainerStatuses"].as_array().into_iter().flatten();
    for status in statuses {
        let exit = &status["state"]["terminated"]["exitCode"];
        ensure!(status["restartCount"] == 0 && (exit.is_null() || *exit == 0), "started without redirection: {pod}");
    }
    Ok(())
}
