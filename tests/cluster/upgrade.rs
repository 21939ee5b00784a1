//! Failing upgrades on a real node: the old agent must stay ready and serve each ADD until the upgrade is reverted.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use contract::{LOG_FILE, RUN_DIR};
use serde_json::{Value, json};

use crate::agent::{Agent, IMAGES, kubectl, upgrade_chart};
use crate::churn;
use crate::cluster::{Cluster, import};
use crate::figures;
use crate::objects::{is_ready, uid};
use crate::stage::{Case, Scope, Stage};
use test_support::runtime::programs::static_build;

pub(crate) const CASES: &[Case] = &[Case {
    name: "the_old_agent_serves_during_a_failing_upgrade",
    namespace: "upgrade",
    scope: Scope::Gate,
    body: upgrade,
}];

/// An image of the agent that lacks the plugin.
const EMPTY: &str = "localhost/install-cni:empty";
/// The number of failed readiness probes of the new agent, one a second, during which the old agent must keep running.
/// If it were not ready, the DaemonSet controller would delete it within this time.
const PROBES: u64 = 10;
const VALUES: &[&str] = &["repair.mode=repair"];
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/istio-cni";

pub(crate) fn upgrade(stage: &Stage<'_>) -> Result<()> {
    let program = static_build("install-cni").map_err(anyhow::Error::msg)?;
    import(EMPTY, &[("usr/local/bin/install-cni", &program)], &[], "SIGTERM")?;
    let agent = Agent::install_chart(stage, VALUES)?;
    let old = only(stage.cluster)?;
    let churn = churn::during(stage, "upgrade", 20, || {
        // An image whose agent never becomes ready.
        set_image(EMPTY)?;
        stays(stage, &old)?;
        set_image(IMAGES[0])?;
        agent.rolled_out()?;
        // An upgrade that names a network configuration that does not exist.
        upgrade_chart(&[VALUES, &["cniConfFileName=no-such.conflist"]].concat())?;
        stays(stage, &old)?;
        agent.upgrade_chart(VALUES)?;
        // An upgrade after the role has lost the right to list pods. The old agent's watch continues, because it does
        // not list again.
        let role = stage.cluster.get(ROLE)?;
        stage.cluster.patch(ROLE, &json!({ "rules": without_list(&role)? }))?;
        set_image(IMAGES[1])?;
        stays(stage, &old)?;
        set_image(IMAGES[0])?;
        agent.rolled_out()?;
        only(stage.cluster)?;
        // The right is restored only now, because the new agent takes over as soon as it has the right.
        stage.cluster.patch(ROLE, &json!({ "rules": role["rules"] })).map(drop)
    })?;
    assert_eq!(uid(&only(stage.cluster)?), uid(&old), "the old agent is still running");
    figures::print_durations("failing upgrades: pod starts", &churn.starts);
    assert_eq!(churn.repaired.len(), 0, "pods without redirection, although the old agent was ready");
    served_by_agents(churn.starts.len())?;
    // A valid upgrade replaces the old agent.
    agent.roll(IMAGES[1])?;
    assert_ne!(uid(&only(stage.cluster)?), uid(&old));
    Ok(())
}

fn set_image(image: &str) -> Result<()> {
    let container = format!("install-cni={image}");
    kubectl(&["--namespace=kube-system", "set", "image", "daemonset/istio-cni-node", &container]).map(drop)
}

fn agents(cluster: &Cluster) -> Result<Vec<Value>> {
    let list = cluster.get("/api/v1/namespaces/kube-system/pods?labelSelector=k8s-app%3Distio-cni-node")?;
    list["items"].as_array().cloned().context("pods")
}

/// Waits until there is exactly one agent pod and returns it.
fn only(cluster: &Cluster) -> Result<Value> {
    cluster.until("there is one agent", |cluster| match agents(cluster)?.as_slice() {
        [only] => Ok(only.clone()),
        several => bail!("{} agents", several.len()),
    })
}

/// Waits for a second agent, and then checks that the old agent stays until the kubelet has reported [`PROBES`] failed
/// probes of the second one.
fn stays(stage: &Stage<'_>, old: &Value) -> Result<()> {
    let new = stage.cluster.until("a second agent runs", |cluster| {
        let new = agents(cluster)?.into_iter().find(|pod| uid(pod) != uid(old)).context("one agent")?;
        ensure!(new["status"]["phase"] == "Running", "{}", new["status"]);
        Ok(new)
    })?;
    stage.cluster.until("the kubelet has reported failed probes of the new agent", |cluster| {
        let outcome = only_old_serves(cluster, old);
        let failed = failed_probes(cluster, &new)?;
        ensure!(outcome.is_err() || failed >= PROBES, "{failed} of {PROBES}");
        Ok(outcome)
    })??;
    let now = agents(stage.cluster)?.into_iter().find(|pod| uid(pod) == uid(old));
    ensure!(now.as_ref().is_some_and(is_ready), "the old agent is not ready: {now:?}");
    Ok(())
}

/// Fails if the old agent is being deleted or if another agent is ready. Ignores whether the old agent is ready,
/// because a kubelet under load may miss single probes.
fn only_old_serves(cluster: &Cluster, old: &Value) -> Result<()> {
    for pod in agents(cluster)? {
        let (is_old, is_ending) = (uid(&pod) == uid(old), !pod["metadata"]["deletionTimestamp"].is_null());
        ensure!(!(is_old && is_ending), "the old agent is being deleted: {pod}");
        ensure!(is_old || !is_ready(&pod), "the new agent is ready: {pod}");
    }
    Ok(())
}

/// Returns the number of failed probes of a pod that events report.
fn failed_probes(cluster: &Cluster, pod: &Value) -> Result<u64> {
    let events = cluster.get("/api/v1/namespaces/kube-system/events")?;
    let events = events["items"].as_array().into_iter().flatten();
    let of_probes = events.filter(|one| one["reason"] == "Unhealthy" && one["involvedObject"]["uid"] == uid(pod));
    Ok(of_probes.filter_map(|event| event["count"].as_u64()).sum())
}

fn without_list(role: &Value) -> Result<Value> {
    let mut rules = role["rules"].clone();
    for rule in rules.as_array_mut().context("rules")? {
        rule["verbs"].as_array_mut().context("verbs")?.retain(|verb| verb == "get");
    }
    rules.as_array_mut().context("rules")?.retain(|rule| rule["verbs"] != json!([]));
    Ok(rules)
}

/// Checks in the plugin's log that the agent, not the API server, served each lookup.
fn served_by_agents(at_least: usize) -> Result<()> {
    let log = fs::read_to_string(Path::new(RUN_DIR).join(LOG_FILE))?;
    let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let adds: Vec<&Value> = lines.iter().filter(|line| line["cmd"] == "ADD" && !line["source"].is_null()).collect();
    let others: Vec<&&Value> = adds.iter().filter(|line| line["source"] != "agent").collect();
    ensure!(others.is_empty(), "lookups that the agent has not served: {others:#?}");
    ensure!(adds.len() >= at_least, "the log has {} of at least {at_least} ADDs", adds.len());
    Ok(())
}
