//! Dapr's injection in a real cluster, from the chart with Dapr switched on: who gets its sidecar, who does not and hears why.

use std::process::Command;

use anyhow::{Result, ensure};
use istio_cni::contract::annotation;
use serde_json::{Value, json};

use crate::account::Account;
use crate::injector::{Injector, Kept, PROXY};
use crate::objects::{deployment, plain, standalone};
use crate::stage::{Case, Stage};

pub(crate) const CASES: &[Case] = &[Case {
    states: "webhook_injects_daprs_sidecar_for_those_who_are_listed",
    namespace: "dapr",
    body: injects_for_the_listed,
}];

/// A controller of the cluster is listed, an account of a namespace is not; who does not ask is not looked at.
fn injects_for_the_listed(stage: &Stage<'_>) -> Result<()> {
    // Any certificate will do.
    let pem = std::fs::read_to_string("/run/kubernetes/apiserver.crt")?;
    let anchors =
        json!({ "kind": "ConfigMap", "metadata": { "name": "dapr-trust-bundle" }, "data": { "ca.crt": pem } });
    let _anchors = Kept::new(stage.cluster, "configmaps", &anchors)?;
    let injector = Injector::install_chart(stage.cluster, &format!("dapr.enabled=true,dapr.image={PROXY}"))?;
    let probe = stage.path("pods?dryRun=All");
    // Until nodes know the way to the webhook, Dapr's pods pass without.
    stage.cluster.until("a pod of the administrator is injected", |cluster| {
        let pod = cluster.create(&probe, &standalone("first", enabled()))?;
        ensure!(has_daprd(&pod), "{pod}");
        Ok(())
    })?;
    stage.create("deployments", &deployment("web", &enabled()))?;
    let pod = stage.pod_that("the Deployment's pod is there", |_| true)?;
    ensure!(has_daprd(&pod), "{pod}");
    ensure!(pod["metadata"]["annotations"][annotation::STATUS].is_null(), "no namespace asks for Istio's: {pod}");

    assert!(!has_daprd(&stage.cluster.create(&probe, &standalone("stranger", plain()))?));
    let (pod, warnings) = created_by_a_builder(stage)?;
    assert!(!has_daprd(&pod), "{pod}");
    let account = format!("system:serviceaccount:{}:builder", stage.namespace);
    ensure!(warnings.starts_with("Warning: ") && warnings.contains(&account), "{warnings:?}");
    let log = injector.says(&["dapr/unlisted", &account])?;
    ensure!(log.contains("unauthorized"), "{log}");
    let log = injector.log()?;
    assert!(!log.contains("stranger"), "the API server asks by annotation");
    assert!(!log.contains("forbidden"), "a right is missing:\n{log}");
    Ok(())
}

/// A pod that asks for Dapr's sidecar.
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

/// The pod as the API server would create it for an account that may create pods, and what `kubectl` has told of it.
fn created_by_a_builder(stage: &Stage<'_>) -> Result<(Value, String)> {
    let dir = tempfile::tempdir()?;
    let (kubeconfig, pod) = (dir.path().join("kubeconfig"), dir.path().join("pod.json"));
    let rules = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["create"] }]);
    Account::new(stage, "builder", &rules)?.write_kubeconfig(&kubeconfig)?;
    std::fs::write(&pod, standalone("unlisted", enabled()).to_string())?;
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(kubeconfig).args(["--namespace", stage.namespace, "create", "--dry-run=server"]);
    let output = command.args(["--validate=false", "--output=json", "--filename"]).arg(pod).output()?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "kubectl: {told}");
    Ok((serde_json::from_slice(&output.stdout)?, told))
}
