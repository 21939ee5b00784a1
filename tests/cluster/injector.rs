//! The webhook as operators get it: `manifests/` applied by kubectl, until the value is dropped.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agent::kubectl;
use crate::cluster::Cluster;

/// Images of the sidecar and of istio-validation, which the manifest leaves to the program.
pub(crate) const PROXY: &str = "test.local/proxy:1";
pub(crate) const VALIDATION: &str = "test.local/validation:1";

const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/sidecar-injector.yaml");
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/install/helm/sidecar-injector");
const REPLICAS: usize = 2;
const SYSTEM: &str = "--namespace=kube-system";
const PODS: &str = "--selector=app=sidecar-injector";
/// Where the API server has webhook configurations.
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// An installed webhook.
pub(crate) struct Injector<'c> {
    cluster: &'c Cluster,
    /// Of all its objects.
    name: String,
    /// What was applied.
    dir: TempDir,
}

impl<'c> Injector<'c> {
    /// Applies the manifest, with images that the node has, and waits until the Deployment is ready.
    pub(crate) fn install(cluster: &'c Cluster) -> Result<Self> {
        Self::apply(cluster, &fs::read_to_string(MANIFEST).context(MANIFEST)?, &Self::without_istiod())
    }

    /// Applies the manifest as it is.
    pub(crate) fn of_the_manifest(cluster: &'c Cluster) -> Result<Self> {
        Self::apply(cluster, &fs::read_to_string(MANIFEST).context(MANIFEST)?, &[])
    }

    /// The same from the chart, with these values.
    pub(crate) fn install_chart(cluster: &'c Cluster, values: &str) -> Result<Self> {
        let helm = env::var_os("HELM").context("HELM names no helm: `make helm` builds it, `make test` names it")?;
        let mut command = Command::new(helm);
        command.args(["template", "sidecar-injector", CHART, SYSTEM, "--kube-version=1.33.0", "--set", values]);
        let output = command.output()?;
        ensure!(output.status.success(), "helm: {}", String::from_utf8_lossy(&output.stderr));
        Self::apply(cluster, &String::from_utf8(output.stdout)?, &Self::without_istiod())
    }

    /// Images that the node has, and no istiod, for whose root certificate pods would wait.
    fn without_istiod() -> [String; 3] {
        [format!("--proxyImage={PROXY}"), format!("--validationImage={VALIDATION}"), "--discoveryAddress=".to_owned()]
    }

    /// Applies a manifest with further arguments of the program, and waits until the Deployment is ready.
    fn apply(cluster: &'c Cluster, manifest: &str, arguments: &[String]) -> Result<Self> {
        let mut objects: Vec<Value> = serde_saphyr::from_multiple(manifest)?;
        let deployment = objects.iter_mut().find(|object| object["kind"] == "Deployment").context("a Deployment")?;
        let name = deployment["metadata"]["name"].as_str().context("a name")?.to_owned();
        let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
        let args = container["args"].as_array_mut().context("arguments")?;
        args.extend(arguments.iter().cloned().map(Value::from));
        let injector = Self { cluster, name, dir: tempfile::tempdir()? };
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        fs::write(injector.applied(), list.to_string())?;
        injector.apply_again()?;
        injector.rolled_out()?;
        Ok(injector)
    }

    /// Where the API server has its webhook configuration.
    pub(crate) fn configuration(&self) -> String {
        format!("{CONFIGURATIONS}/{}-kube-system", self.name)
    }

    fn deployment(&self) -> String {
        format!("deployment/{}", self.name)
    }

    fn applied(&self) -> String {
        self.dir.path().join("manifest.json").display().to_string()
    }

    /// Applies what was applied before.
    pub(crate) fn apply_again(&self) -> Result<()> {
        kubectl(&["apply", "--filename", &self.applied()])?;
        Ok(())
    }

    /// Waits until the Deployment's pods are of its latest version, and ready.
    pub(crate) fn rolled_out(&self) -> Result<()> {
        kubectl(&[SYSTEM, "rollout", "status", &self.deployment(), "--timeout=60s"])?;
        Ok(())
    }

    /// Replaces its pods one after the other, as an upgrade does.
    pub(crate) fn roll(&self) -> Result<()> {
        kubectl(&[SYSTEM, "rollout", "restart", &self.deployment()])?;
        self.rolled_out()
    }

    /// So many pods of it, once the others have ended.
    pub(crate) fn scale(&self, replicas: usize) -> Result<()> {
        kubectl(&[SYSTEM, "scale", &self.deployment(), &format!("--replicas={replicas}")])?;
        self.cluster.until("pods of the webhook", |_| {
            let pods = self.pods()?;
            ensure!(pods.len() == replicas, "{pods:?}");
            Ok(())
        })?;
        self.rolled_out()
    }

    /// Deletes all of its pods at once, and waits for others.
    pub(crate) fn delete_pods(&self) -> Result<()> {
        kubectl(&[SYSTEM, "delete", "pods", PODS, "--timeout=60s"])?;
        self.rolled_out()
    }

    /// Deletes one of its pods, in its own time, and waits for another.
    pub(crate) fn delete_pod(&self) -> Result<()> {
        let pods = self.pods()?;
        kubectl(&[SYSTEM, "delete", pods.first().context("a pod")?, "--timeout=60s"])?;
        self.rolled_out()
    }

    /// Kills one of its processes, and waits for the one that follows.
    pub(crate) fn kill(&self) -> Result<()> {
        // Those that are about to end have no successor.
        let before = self.cluster.until("only those that stay run", |_| {
            let running = processes()?;
            ensure!(running.len() == REPLICAS, "{running:?}");
            Ok(running)
        })?;
        kill(*before.first().context("a process")?, Signal::SIGKILL)?;
        self.cluster.until("another process of the webhook", |_| {
            let after = processes()?;
            ensure!(after.len() == REPLICAS && after != before, "{before:?} {after:?}");
            Ok(())
        })?;
        self.rolled_out()
    }

    /// `pod/name` of each of its pods.
    fn pods(&self) -> Result<Vec<String>> {
        Ok(kubectl(&[SYSTEM, "get", "pods", PODS, "--output=name"])?.lines().map(str::to_owned).collect())
    }

    /// What its pods have said.
    pub(crate) fn log(&self) -> Result<String> {
        kubectl(&[SYSTEM, "logs", PODS, "--tail=-1", "--prefix"])
    }

    /// Waits for a line with these words.
    pub(crate) fn says(&self, words: &[&str]) -> Result<String> {
        self.cluster.until(&format!("a line with {words:?}"), |_| {
            let log = self.log()?;
            match log.lines().find(|line| words.iter().all(|word| line.contains(word))) {
                Some(line) => Ok(line.to_owned()),
                None => bail!("{log}"),
            }
        })
    }

    /// The caBundles of its webhooks.
    pub(crate) fn bundles(&self) -> Result<Vec<Value>> {
        let configuration = self.cluster.get(&self.configuration())?;
        let webhooks = configuration["webhooks"].as_array().context("webhooks")?;
        Ok(webhooks.iter().map(|webhook| webhook["clientConfig"]["caBundle"].clone()).collect())
    }
}

impl Drop for Injector<'_> {
    fn drop(&mut self) {
        // What nobody answers any more must not be asked.
        let _ = self.cluster.delete(&self.configuration());
        let _ = kubectl(&["delete", "--filename", &self.applied(), "--ignore-not-found"]);
        let _ = kubectl(&[SYSTEM, "delete", "pods", PODS, "--force", "--grace-period=0"]);
        // Made by the program, and so in no manifest.
        let _ = kubectl(&[SYSTEM, "delete", "secret", "sidecar-injector-certificate", "--ignore-not-found"]);
        let _ = self.cluster.until("the webhook's processes have ended", |_| {
            let left = processes()?;
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        });
    }
}

/// An object of the webhook's namespace, as long as the value lives.
pub(crate) struct Kept<'c> {
    cluster: &'c Cluster,
    /// Where the API server has it.
    pub(crate) path: String,
}

impl<'c> Kept<'c> {
    pub(crate) fn new(cluster: &'c Cluster, collection: &str, object: &Value) -> Result<Self> {
        let all = format!("/api/v1/namespaces/kube-system/{collection}");
        let object = cluster.create(&all, object)?;
        let path = format!("{all}/{}", object["metadata"]["name"].as_str().context("a name")?);
        Ok(Self { cluster, path })
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        let _ = self.cluster.delete(&self.path);
    }
}

/// The webhook's processes. All that can be seen from here are the cluster's own.
fn processes() -> Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let program = line.split(|byte| *byte == 0).next().unwrap_or_default();
        if Path::new(&*String::from_utf8_lossy(program)).ends_with("sidecar-injector") {
            found.push(Pid::from_raw(pid));
        }
    }
    found.sort();
    Ok(found)
}
