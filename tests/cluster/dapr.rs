//! Tests Dapr's injection in a real cluster, from the chart with Dapr enabled. Pods of allowed accounts get the
//! sidecar, and requests by other accounts get a warning.

use std::process::Command;

use anyhow::{Result, ensure};
use contract::annotation;
use serde_json::{Value, json};

use crate::account::Account;
use crate::injector::{Injector, PROXY, TemporaryObject};
use crate::objects::{deployment, plain, standalone};
use crate::stage::{Case, Scope, Stage};

pub(crate) const CASES: &[Case] = &[Case {
    name: "webhook_injects_daprs_sidecar_for_allowed_accounts",
    namespace: "dapr",
    scope: Scope::Full,
    body: injects_for_allowed_accounts,
}];

/// Pods that the cluster's ReplicaSet controller creates get the sidecar, because its account is on the list of allowed
/// accounts. A pod created by a service account that is not on the list gets none. Pods without Dapr's annotation do
/// not reach the webhook.
fn injects_for_allowed_accounts(stage: &Stage<'_>) -> Result<()> {
    // The webhook accepts any certificate as a trust anchor, such as the API server's.
    let pem = std::fs::read_to_string("/run/kubernetes/apiserver.crt")?;
    let anchors =
        json!({ "kind": "ConfigMap", "metadata": { "name": "dapr-trust-bundle" }, "data": { "ca.crt": pem } });
    let _anchors = TemporaryObject::new(stage.cluster, "configmaps", &anchors)?;
    let injector = Injector::install_chart(stage.cluster, &format!("dapr.enabled=true,dapr.image={PROXY}"))?;
    let probe = stage.path("pods?dryRun=All");
    // Before kube-proxy has received the webhook's endpoints, the API server admits pods without Dapr's sidecar,
    // because the webhook's failure policy is Ignore.
    stage.cluster.until("a pod of the administrator is injected", |cluster| {
        let pod = cluster.create(&probe, &standalone("first", enabled()))?;
        ensure!(has_daprd(&pod), "{pod}");
        Ok(())
    })?;
    stage.create("deployments", &deployment("web", &enabled()))?;
    let pod = stage.pod_that("the Deployment's pod is there", |_| true)?;
    ensure!(has_daprd(&pod), "{pod}");
    ensure!(pod["metadata"]["annotations"][annotation::STATUS].is_null(), "Istio's injection is not enabled: {pod}");

    assert!(!has_daprd(&stage.cluster.create(&probe, &standalone("not-enabled", plain()))?));
    let (pod, warnings) = create_by_builder(stage)?;
    assert!(!has_daprd(&pod), "{pod}");
    let account = format!("system:serviceaccount:{}:builder", stage.namespace);
    ensure!(warnings.starts_with("Warning: ") && warnings.contains(&account), "{warnings:?}");
    let log = injector.wait_for_log(&["dapr/unlisted", &account])?;
    ensure!(log.contains("unauthorized"), "{log}");
    let log = injector.log()?;
    assert!(!log.contains("not-enabled"), "the webhook received a pod without Dapr's annotation");
    assert!(!log.contains("forbidden"), "a right is missing:\n{log}");
    Ok(())
}

/// Returns a pod that requests Dapr's injection.
fn enabled() -> Value {
    let mut pod = plain();
    for (key, value) in [("dapr.io/enabled", "true"), ("dapr.io/app-id", "web")] {
        pod["metadata"]["annotations"][key] = value.into();
    }
    pod
}

fn has_daprd(pod: &Value) -> bool {
    let containers = ["containers", "initContainers"].map(|list| pod["spec"][list].as_array().into_iter().flatten());
    containers.into_iter().flatten().any(|container| container["name"] == "daprd")
}

/// Creates a pod, in a dry run, as an account that is not allowed. Returns the pod and kubectl's stderr.
fn create_by_builder(stage: &Stage<'_>) -> Result<(Value, String)> {
    let dir = tempfile::tempdir()?;
    let (kubeconfig, pod) = (dir.path().join("kubeconfig"), dir.path().join("pod.json"));
    let rules = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["create"] }]);
    Account::new(stage, "builder", &rules)?.write_kubeconfig(&kubeconfig)?;
    std::fs::write(&pod, standalone("unlisted", enabled()).to_string())?;
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(kubeconfig).args(["--namespace", stage.namespace, "create", "--dry-run=server"]);
    let output = command.args(["--validate=false", "--output=json", "--filename"]).arg(pod).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "kubectl: {stderr}");
    Ok((serde_json::from_slice(&output.stdout)?, stderr))
}
