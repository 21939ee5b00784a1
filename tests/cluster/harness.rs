//! The cluster itself, before anything of ours is in it.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result};

use crate::cluster::NODE;
use crate::objects::{is_ready, plain, standalone};
use crate::runtime::outside;
use crate::runtime::pod::APP_PORT;
use crate::stage::{Case, Stage};

pub(crate) const CASES: &[Case] =
    &[Case { states: "a_plain_pod_runs_on_the_node_and_answers", namespace: "plain", body: plain_pod }];

fn plain_pod(stage: &Stage<'_>) -> Result<()> {
    let node = stage.cluster.get(&format!("/api/v1/nodes/{NODE}"))?;
    assert!(is_ready(&node), "{}", node["status"]);
    stage.create("pods", &standalone("web", plain()))?;
    let pod = stage.pod_that("the pod is ready", is_ready)?;
    let ip: IpAddr = pod["status"]["podIP"].as_str().context("an address")?.parse()?;
    let whom = SocketAddr::new(ip, APP_PORT);
    let trace = outside::ask(&stage.cluster.netns, whom)?;
    assert_eq!(trace.hops(), [("app", whom)], "{trace}");
    Ok(())
}
