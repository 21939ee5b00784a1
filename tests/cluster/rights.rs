//! What the API server lets the agent do, and pods be: each right is used by somebody, and what goes beyond is refused.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::agent::{Agent, DAEMON_SET_ALONE, kubectl};
use crate::cluster::NODE;
use crate::objects::{confined, deployment, injected, is_ready, standalone, uid};
use crate::stage::{Case, Stage};

pub(crate) const CASES: &[Case] = &[
    Case { states: "each_right_of_the_manifests_is_used", namespace: "used", body: used },
    Case { states: "the_startup_taint_goes_once_pods_are_redirected", namespace: "taint", body: taint },
    Case { states: "pod_security_admits_what_the_documentation_says", namespace: "security", body: security },
];

/// Who the agent is for the API server.
pub(crate) const USER: &str = "system:serviceaccount:kube-system:istio-cni";
/// Who the plugin is for it.
const PLUGIN: &str = "system:serviceaccount:kube-system:istio-cni-plugin";
/// Where the API server writes down each request of those two users.
const AUDIT: &str = "/run/cluster/audit.log";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// From the first pod that it mends to its own end.
fn used(stage: &Stage<'_>) -> Result<()> {
    let before = fs::read_to_string(AUDIT)?.len();
    stage.create("deployments", &deployment("web", &injected()))?;
    let broken = stage.broken()?;
    let agent = Agent::install(stage)?;
    stage.pod_that("another pod is ready", |pod| is_ready(pod) && uid(pod) != uid(&broken))?;
    // An agent that hangs: the plugin asks the API server instead.
    agent.signal(Signal::SIGSTOP)?;
    stage.create("pods", &standalone("alone", injected()))?;
    let is_alone = |pod: &Value| pod["metadata"]["name"] == "alone" && is_ready(pod);
    let alone = stage.pod_that("the pod is ready without the agent's answer", is_alone);
    agent.signal(Signal::SIGCONT)?;
    stage.redirected(&alone?)?;
    let mut given = [given(stage, &AGENT_ROLES)?, given(stage, &PLUGIN_ROLES)?];
    // This API server streams lists, which is watching; older ones do not.
    ensure!(given[0].remove("list /pods"), "{given:?}");
    agent.delete(DAEMON_SET_ALONE)?;

    let text = fs::read_to_string(AUDIT)?;
    let requests: Vec<Value> = text[before..].lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let refused: Vec<&Value> = requests
        .iter()
        .filter(|request| matches!(request["responseStatus"]["code"].as_i64(), Some(401 | 403)))
        .collect();
    ensure!(refused.is_empty(), "they ask for what they may not: {refused:#?}");
    let used = [USER, PLUGIN].map(|user| -> BTreeSet<String> {
        let own = requests.iter().filter(|request| request["user"]["username"] == user);
        own.map(|request| right(&request["verb"], &request["objectRef"])).collect()
    });
    assert_eq!(used, given, "the agent's rights, and the plugin's");
    let node = |request: &Value| request["user"]["extra"]["authentication.kubernetes.io/node-name"][0].clone();
    let other = requests.iter().map(node).find(|node| *node != NODE);
    assert_eq!(other, None, "each token names the node that it was issued for");
    Ok(())
}

/// `get /pods`, `create /pods/eviction`, as the API server tells of a request.
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

/// All that roles of the manifests give.
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

/// The key of the startup taint, and of one that is nobody's business here.
const TAINTS: [&str; 2] = ["cni.istio.io/not-ready", "example.com/other"];

/// Without the right to remove it, the taint stays and the log says why; with it, it goes, and no other.
fn taint(stage: &Stage<'_>) -> Result<()> {
    let _tainted = Tainted::new()?;
    stage.create("pods", &standalone("web", injected()))?;
    stage.pod_that("no node takes the pod", |pod| pod["status"]["conditions"][0]["reason"] == "Unschedulable")?;
    let agent = Agent::install_chart(stage, &[])?;
    // The chart gives the right together with the setting, so the setting alone comes past it.
    let setting = format!("STARTUP_TAINT={}", TAINTS[0]);
    kubectl(&["--namespace=kube-system", "set", "env", "daemonset/istio-cni-node", &setting])?;
    agent.rolled_out()?;
    agent.says(&["the startup taint cannot be removed yet", r#"cannot patch resource "nodes""#])?;
    stage.pod_that("no node takes the pod still", |pod| pod["spec"]["nodeName"].is_null())?;

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

/// Taints on the node; they go with the value.
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

/// The agent needs `privileged`; what it saves pods from is an init container that `restricted` refuses.
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
        let Err(error) = try_to_create(stage, pod) else { bail!("it is admitted") };
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
