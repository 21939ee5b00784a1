//! Replaces Istio's agent with this one and back, with Helm, while pods are created and deleted.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agent::{Agent, CHART};
use crate::churn;
use crate::cluster::import;
use crate::figures;
use crate::install::longest_gap;
use crate::stage::{Case, Scope, Stage};
use test_support::runtime::programs::{pod_program, static_build};

pub(crate) const CASES: &[Case] = &[Case {
    name: "helm_upgrades_from_istios_agent_to_this_one_and_back",
    namespace: "migration",
    scope: Scope::Full,
    body: migrate,
}];

/// An image with the plugin and with an installer that, like Istio's, removes the plugin when it exits.
const IMAGE: &str = "localhost/istio-installer:test";

fn migrate(stage: &Stage<'_>) -> Result<()> {
    let [installer, plugin] = [pod_program("istio_installer"), static_build("istio-cni")];
    let (installer, plugin) = (installer.map_err(anyhow::Error::msg)?, plugin.map_err(anyhow::Error::msg)?);
    let programs = [("install-cni", installer.as_path()), ("opt/cni/bin/istio-cni", plugin.as_path())];
    import(IMAGE, &programs, &[], "SIGTERM")?;
    let chart = istio_chart()?;
    let istio = chart.path().to_str().ok_or_else(|| anyhow!("a path in UTF-8"))?;
    let agent = Agent::install_from(stage, istio, &[])?;

    let over = AtomicBool::new(false);
    let (migrated, gap) = thread::scope(|scope| {
        let watching = scope.spawn(|| longest_gap(&agent, &over));
        let migrated = churn::during(stage, "migrated", 20, || agent.upgrade_from(CHART, &["repair.mode=repair"]));
        over.store(true, Ordering::Relaxed);
        (migrated, watching.join())
    });
    let (migrated, gap) = (migrated?, gap.map_err(|_| anyhow!("the thread that observes the chain has panicked"))?);
    // Istio's agent removes the plugin when it exits, so there is a gap. Pods that start in the gap are repaired.
    figures::print_durations("from Istio's agent: longest time without the plugin", &[gap]);
    figures::print_durations("from Istio's agent: pod starts", &migrated.starts);
    figures::print_durations("from Istio's agent: starts of repaired pods", &migrated.repaired);

    let over = AtomicBool::new(false);
    let (back, gap) = thread::scope(|scope| {
        let watching = scope.spawn(|| longest_gap(&agent, &over));
        let back = churn::during(stage, "back", 20, || agent.upgrade_from(istio, &[]));
        over.store(true, Ordering::Relaxed);
        (back, watching.join())
    });
    let (back, gap) = (back?, gap.map_err(|_| anyhow!("the thread that observes the chain has panicked"))?);
    figures::print_durations("back to Istio's agent: pod starts", &back.starts);
    assert_eq!(
        (back.repaired.len(), gap),
        (0, Duration::ZERO),
        "repaired pods, and the longest time without the plugin"
    );

    agent.uninstall()?;
    assert_eq!(agent.leftovers()?, Vec::<String>::new());
    Ok(())
}

/// Creates a chart with those objects of Istio's chart that the upgrade replaces, under the same names.
fn istio_chart() -> Result<TempDir> {
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
