//! From Istio's agent to this one and back, by Helm, while pods come and go.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agent::{Agent, CHART};
use crate::churn;
use crate::cluster::import;
use crate::figures;
use crate::install::longest_gap;
use crate::stage::{Case, Stage};
use test_support::runtime::programs::{pod_program, static_build};

pub(crate) const CASES: &[Case] =
    &[Case { states: "from_istios_agent_to_this_one_and_back", namespace: "migration", body: migrate }];

/// An installer that ends as Istio's does, and the plugin.
const IMAGE: &str = "localhost/istio-installer:test";
/// Istio's agent removes the plugin at its end. The plugin returns within milliseconds; the bound leaves room for a machine whose
/// processors are busy with the pods that start.
const GAP: Duration = Duration::from_millis(200);

fn migrate(stage: &Stage<'_>) -> Result<()> {
    let [installer, plugin] = [pod_program("istio_installer"), static_build("istio-cni")];
    let (installer, plugin) = (installer.map_err(anyhow::Error::msg)?, plugin.map_err(anyhow::Error::msg)?);
    let programs = [("install-cni", installer.as_path()), ("opt/cni/bin/istio-cni", plugin.as_path())];
    import(IMAGE, &programs, &[], "SIGTERM")?;
    let istios = chart()?;
    let istios = istios.path().to_str().ok_or_else(|| anyhow!("a path in UTF-8"))?;
    let agent = Agent::install_from(stage, istios, &[])?;

    let over = AtomicBool::new(false);
    let (there, gap) = thread::scope(|scope| {
        let watching = scope.spawn(|| longest_gap(&agent, &over));
        let there = churn::during(stage, "there", 20, || agent.upgrade_from(CHART, &["repair.mode=repair"]));
        over.store(true, Ordering::Relaxed);
        (there, watching.join())
    });
    let (there, gap) = (there?, gap.map_err(|_| anyhow!("the watch has panicked"))?);
    figures::of("from Istio's agent: without the plugin, at most", &[gap]);
    figures::of("from Istio's agent: pod starts", &there.starts);
    figures::of("from Istio's agent: starts of pods that were mended", &there.slipped);
    ensure!(gap <= GAP, "the plugin was missing for {gap:?}");

    let over = AtomicBool::new(false);
    let (back, gap) = thread::scope(|scope| {
        let watching = scope.spawn(|| longest_gap(&agent, &over));
        let back = churn::during(stage, "back", 20, || agent.upgrade_from(istios, &[]));
        over.store(true, Ordering::Relaxed);
        (back, watching.join())
    });
    let (back, gap) = (back?, gap.map_err(|_| anyhow!("the watch has panicked"))?);
    figures::of("back to Istio's agent: pod starts", &back.starts);
    assert_eq!((back.slipped.len(), gap), (0, Duration::ZERO), "pods that slipped through, and the longest gap");

    agent.uninstall()?;
    assert_eq!(agent.leftovers()?, Vec::<String>::new());
    Ok(())
}

/// The objects of Istio's chart that matter here, under its names.
fn chart() -> Result<TempDir> {
    let dir = tempfile::tempdir()?;
    fs::write(dir.path().join("Chart.yaml"), "{apiVersion: v2, name: cni, version: 1.0.0}\n")?;
    fs::create_dir(dir.path().join("templates"))?;
    write(
        dir.path(),
        "account",
        &json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "istio-cni", "namespace": "kube-system" },
        }),
    )?;
    write(
        dir.path(),
        "role",
        &json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "istio-cni" },
            "rules": [{ "apiGroups": [""], "resources": ["pods", "nodes", "namespaces"], "verbs": ["get", "list", "watch"] }],
        }),
    )?;
    write(
        dir.path(),
        "binding",
        &json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "istio-cni" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "istio-cni" },
            "subjects": [{ "kind": "ServiceAccount", "name": "istio-cni", "namespace": "kube-system" }],
        }),
    )?;
    write(dir.path(), "daemonset", &daemon_set())?;
    Ok(dir)
}

fn write(chart: &Path, name: &str, object: &Value) -> Result<()> {
    Ok(fs::write(chart.join(format!("templates/{name}.yaml")), object.to_string())?)
}

fn daemon_set() -> Value {
    let directories = [
        ("bin", "/host/opt/cni/bin", "/opt/cni/bin"),
        ("net", "/host/etc/cni/net.d", "/etc/cni/net.d"),
        ("run", "/var/run/istio-cni", "/var/run/istio-cni"),
    ];
    let mounts = directories.map(|(name, inside, _)| json!({ "name": name, "mountPath": inside }));
    let volumes = directories
        .map(|(name, _, path)| json!({ "name": name, "hostPath": { "path": path, "type": "DirectoryOrCreate" } }));
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "name": "istio-cni-node", "namespace": "kube-system", "labels": { "k8s-app": "istio-cni-node" } },
        "spec": {
            "selector": { "matchLabels": { "k8s-app": "istio-cni-node" } },
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1 } },
            "template": {
                "metadata": { "labels": { "k8s-app": "istio-cni-node" } },
                "spec": {
                    "serviceAccountName": "istio-cni", "priorityClassName": "system-node-critical",
                    "tolerations": [{ "operator": "Exists" }],
                    "containers": [{
                        "name": "install-cni", "image": IMAGE, "command": ["/install-cni"], "volumeMounts": mounts,
                        "readinessProbe": { "httpGet": { "path": "/readyz", "port": 8000 }, "periodSeconds": 1 },
                        "securityContext": { "runAsUser": 0, "runAsGroup": 0 },
                    }],
                    "volumes": volumes,
                },
            },
        },
    })
}
