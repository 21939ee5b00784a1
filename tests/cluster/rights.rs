//! Tests the rights of the agent and the security level of its pods: each right must be used by a request, and the API server must refuse
//! requests beyond the rights.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::agent::{Agent, DAEMON_SET_ALONE, kubectl};
use crate::cluster::NODE;
use crate::objects::{confined, deployment, injected, is_ready, standalone, uid};
use crate::stage::{Case, Scope, Stage};

pub(crate) const CASES: &[Case] = &[
    Case { name: "each_right_of_the_manifests_is_used", namespace: "used", scope: Scope::Full, body: used },
    Case {
        name: "the_startup_taint_is_removed_once_pods_are_redirected",
        namespace: "taint",
        scope: Scope::Full,
        body: taint,
    },
    Case {
        name: "pod_security_admits_what_the_documentation_says",
        namespace: "security",
        scope: Scope::Full,
        body: security,
    },
];

/// The agent's user name.
pub(crate) const USER: &str = "system:serviceaccount:kube-system:istio-cni";
/// The plugin's user name.
const PLUGIN: &str = "system:serviceaccount:kube-system:istio-cni-plugin";
/// The API server's audit log of the requests of these two users.
const AUDIT: &str = "/run/cluster/audit.log";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Compares the requests of agent and plugin in the audit log, from the installation to the removal, with the rights in their roles: each
/// right must be used, and no request must be refused.
fn used(stage: &Stage<'_>) -> Result<()> {
    let before = fs::read_to_string(AUDIT)?.len();
    stage.create("deployments", &deployment("web", &injected()))?;
    let broken = stage.broken()?;
    let agent = Agent::install(stage)?;
    stage.pod_that("another pod is ready", |pod| is_ready(pod) && uid(pod) != uid(&broken))?;
    // While the agent is stopped, the plugin requests the pod from the API server instead.
    agent.signal(Signal::SIGSTOP)?;
    stage.create("pods", &standalone("alone", injected()))?;
    let is_alone = |pod: &Value| pod["metadata"]["name"] == "alone" && is_ready(pod);
    let alone = stage.pod_that("the pod is ready without the agent", is_alone);
    agent.signal(Signal::SIGCONT)?;
    stage.redirected(&alone?)?;
    let mut given = [given(stage, &AGENT_ROLES)?, given(stage, &PLUGIN_ROLES)?];
    // The agent needs the right to list pods only with older API servers. This API server sends lists as part of
    // watches.
    ensure!(given[0].remove("list /pods"), "{given:?}");
    agent.delete(DAEMON_SET_ALONE)?;

    let text = fs::read_to_string(AUDIT)?;
    let requests: Vec<Value> = text[before..].lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let refused: Vec<&Value> = requests
        .iter()
        .filter(|request| matches!(request["responseStatus"]["code"].as_i64(), Some(401 | 403)))
        .collect();
    ensure!(refused.is_empty(), "requests were refused: {refused:#?}");
    let used = [USER, PLUGIN].map(|user| -> BTreeSet<String> {
        let own = requests.iter().filter(|request| request["user"]["username"] == user);
        own.map(|request| right(&request["verb"], &request["objectRef"])).collect()
    });
    assert_eq!(used, given, "the used rights differ from those of the roles of agent and plugin");
    let node = |request: &Value| request["user"]["extra"]["authentication.kubernetes.io/node-name"][0].clone();
    let other = requests.iter().map(node).find(|node| *node != NODE);
    assert_eq!(other, None, "each token names the node that it was issued for");
    Ok(())
}

/// Returns the right that a request in the audit log needs, such as `get /pods` or `create /pods/eviction`.
fn right(verb: &Value, object: &Value) -> String {
    let field = |name: &str| object[name].as_str().unwrap_or_default();
    let slash = if field("subresource").is_empty() { "" } else { "/" };
    format!(
        "{} {}/{}{slash}{}",
        verb.as_str().unwrap_or_default(),
        field("apiGroup"),
        field("resource"),
        field("subresource")
    )
}

/// The roles of the agent's account.
const AGENT_ROLES: [&str; 4] = [
    "clusterroles/istio-cni",
    "clusterroles/istio-cni-repair-role",
    "namespaces/kube-system/roles/istio-cni",
    "namespaces/kube-system/roles/istio-cni-plugin-token",
];
/// The role of the plugin's account.
const PLUGIN_ROLES: [&str; 1] = ["clusterroles/istio-cni-plugin"];

/// Returns the rights in roles of the manifests, in the form of [`right`].
fn given(stage: &Stage<'_>, roles: &[&str]) -> Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for role in roles {
        let role = stage.cluster.get(&format!("{RBAC}/{role}"))?;
        let each = |list: &Value| -> Vec<String> {
            list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
        };
        for rule in role["rules"].as_array().context("rules")? {
            for (group, resource) in
                each(&rule["apiGroups"]).iter().flat_map(|g| each(&rule["resources"]).into_iter().map(move |r| (g, r)))
            {
                all.extend(each(&rule["verbs"]).iter().map(|verb| format!("{verb} {group}/{resource}")));
            }
        }
    }
    Ok(all)
}

/// The keys of the startup taint and of an unrelated one.
const TAINTS: [&str; 2] = ["cni.istio.io/not-ready", "example.com/other"];

/// Without the right to patch nodes, the agent must leave the startup taint and log the reason. With the right, it must remove this taint
/// and no other.
fn taint(stage: &Stage<'_>) -> Result<()> {
    let _tainted = Tainted::new()?;
    unschedulable(stage)?;
    let agent = Agent::install_chart(stage, &[])?;
    // The chart's setting would also add the right, so the variable is set by kubectl.
    let setting = format!("STARTUP_TAINT={}", TAINTS[0]);
    kubectl(&["--namespace=kube-system", "set", "env", "daemonset/istio-cni-node", &setting])?;
    agent.rolled_out()?;
    agent.wait_for_log(&["the startup taint cannot be removed yet", r#"cannot patch resource "nodes""#])?;
    stage.pod_that("the pod is still not scheduled", |pod| pod["spec"]["nodeName"].is_null())?;

    agent.upgrade_chart(&["taint.enabled=true"])?;
    let pod = stage.pod_that("the pod is ready", is_ready)?;
    let validation = &pod["status"]["initContainerStatuses"][0];
    assert_eq!(validation["restartCount"], 0, "redirected from the start: {validation}");
    stage.redirected(&pod)?;
    let node = stage.cluster.get(&format!("/api/v1/nodes/{NODE}"))?;
    let keys: Vec<&Value> =
        node["spec"]["taints"].as_array().into_iter().flatten().map(|taint| &taint["key"]).collect();
    assert_eq!(keys, [TAINTS[1]]);
    Ok(())
}

/// Creates the pod until the scheduler refuses it. A scheduler that has not received the taint yet schedules the pod,
/// which is then deleted.
fn unschedulable(stage: &Stage<'_>) -> Result<()> {
    let pod = format!("{}/web", stage.path("pods"));
    stage.cluster.until("the pod is not scheduled", |cluster| {
        match cluster.get(&pod) {
            Ok(found) if found["status"]["conditions"][0]["reason"] == "Unschedulable" => return Ok(()),
            Ok(found) if !found["spec"]["nodeName"].is_null() => {
                cluster.delete(&format!("{pod}?gracePeriodSeconds=0"))?;
            }
            Ok(_) => {}
            Err(_) => {
                stage.create("pods", &standalone("web", injected()))?;
            }
        }
        bail!("the scheduler has not refused the pod yet")
    })
}

/// Adds [`TAINTS`] to the node and removes them when the value is dropped.
struct Tainted;

impl Tainted {
    fn new() -> Result<Self> {
        let [ours, other] = [format!("{}=:NoSchedule", TAINTS[0]), format!("{}=:PreferNoSchedule", TAINTS[1])];
        kubectl(&["taint", "node", NODE, &ours, &other])?;
        Ok(Self)
    }
}

impl Drop for Tainted {
    fn drop(&mut self) {
        for key in TAINTS {
            let _ = kubectl(&["taint", "node", NODE, &format!("{key}-")]);
        }
    }
}

/// The agent needs the level `privileged`. Injected pods must be admitted at `restricted`, which refuses Istio's privileged init container.
fn security(stage: &Stage<'_>) -> Result<()> {
    let _agent = Agent::install(stage)?;
    let agent = stage.cluster.get("/apis/apps/v1/namespaces/kube-system/daemonsets/istio-cni-node")?;
    let mut agent = standalone("agent", agent["spec"]["template"].clone());
    agent["spec"]["serviceAccountName"] = "default".into();
    admitted(stage, "privileged", &agent)?;
    refused(stage, "baseline", &agent, "hostPath")?;

    let application = standalone("web", confined(injected()));
    let mut privileged = application.clone();
    privileged["metadata"]["name"] = "init".into();
    privileged["spec"]["initContainers"][0]["securityContext"]["capabilities"]["add"] = json!(["NET_ADMIN"]);
    refused(stage, "restricted", &privileged, "NET_ADMIN")?;
    stage.create("pods", &application)?;
    stage.redirected(&stage.pod_that("the pod is ready", is_ready)?)
}

fn admitted(stage: &Stage<'_>, level: &str, pod: &Value) -> Result<()> {
    enforce(stage, level)?;
    stage.cluster.until(&format!("{level} admits the pod"), |_| try_to_create(stage, pod))
}

fn refused(stage: &Stage<'_>, level: &str, pod: &Value, because: &str) -> Result<()> {
    enforce(stage, level)?;
    stage.cluster.until(&format!("{level} refuses the pod"), |_| {
        let Err(error) = try_to_create(stage, pod) else { bail!("the pod is admitted") };
        let (error, words) = (format!("{error:#}"), format!("violates PodSecurity \"{level}:latest\""));
        ensure!(error.contains(&words) && error.contains(because), "{error}");
        Ok(())
    })
}

fn enforce(stage: &Stage<'_>, level: &str) -> Result<()> {
    let labels = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": level } } });
    stage.cluster.patch(&format!("/api/v1/namespaces/{}", stage.namespace), &labels).map(drop)
}

fn try_to_create(stage: &Stage<'_>, pod: &Value) -> Result<()> {
    stage.cluster.create(&format!("{}?dryRun=All", stage.path("pods")), pod).map(drop)
}
