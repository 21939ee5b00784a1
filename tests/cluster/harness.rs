//! Trials of the cluster itself, before the agent or the webhook is installed.

use anyhow::Result;

use crate::cluster::NODE;
use crate::objects::{is_ready, plain, standalone};
use crate::stage::{Case, Scope, Stage};

pub(crate) const CASES: &[Case] = &[Case {
    name: "a_plain_pod_runs_on_the_node_and_responds",
    namespace: "plain",
    scope: Scope::Gate,
    body: plain_pod,
}];

fn plain_pod(stage: &Stage<'_>) -> Result<()> {
    let node = stage.cluster.get(&format!("/api/v1/nodes/{NODE}"))?;
    assert!(is_ready(&node), "{}", node["status"]);
    stage.create("pods", &standalone("web", plain()))?;
    let pod = stage.pod_that("the pod is ready", is_ready)?;
    let trace = stage.connect(&pod)?;
    let hops: Vec<&str> = trace.hops().into_iter().map(|(program, _)| program).collect();
    assert_eq!(hops, ["app"], "{trace}");
    Ok(())
}
