//! The cluster itself, before anything of ours is in it.

use anyhow::Result;

use crate::cluster::NODE;
use crate::objects::{is_ready, plain, standalone};
use crate::stage::{Case, Stage};

pub(crate) const CASES: &[Case] =
    &[Case { states: "a_plain_pod_runs_on_the_node_and_answers", namespace: "plain", body: plain_pod }];

fn plain_pod(stage: &Stage<'_>) -> Result<()> {
    let node = stage.cluster.get(&format!("/api/v1/nodes/{NODE}"))?;
    assert!(is_ready(&node), "{}", node["status"]);
    stage.create("pods", &standalone("web", plain()))?;
    let pod = stage.pod_that("the pod is ready", is_ready)?;
    let trace = stage.ask(&pod)?;
    let who: Vec<&str> = trace.hops().into_iter().map(|(who, _)| who).collect();
    assert_eq!(who, ["app"], "{trace}");
    Ok(())
}
