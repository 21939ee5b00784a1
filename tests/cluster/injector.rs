//! Installs the webhook with kubectl, from `manifests/` or from the rendered chart, and removes it when the value is dropped.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agent::{PATIENCE, kubectl};
use crate::cluster::Cluster;

/// The images of the sidecar and of istio-validation. Flags set them, because the manifest names none.
pub(crate) const PROXY: &str = "test.local/proxy:1";
pub(crate) const VALIDATION: &str = "test.local/validation:1";

const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/sidecar-injector.yaml");
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/install/helm/sidecar-injector");
const REPLICAS: usize = 2;
const SYSTEM: &str = "--namespace=kube-system";
const PODS: &str = "--selector=app=sidecar-injector";
/// The API path of webhook configurations.
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// An installed webhook.
pub(crate) struct Injector<'c> {
    cluster: &'c Cluster,
    /// The name of the webhook's Deployment; the name of its webhook configuration begins with it.
    name: String,
    /// The directory of the applied manifest.
    dir: TempDir,
}

impl<'c> Injector<'c> {
    /// Applies the manifest with the images of the trials and without istiod, and waits until the Deployment is ready.
    pub(crate) fn install(cluster: &'c Cluster) -> Result<Self> {
        Self::apply(cluster, &fs::read_to_string(MANIFEST).context(MANIFEST)?, &Self::without_istiod())
    }

    /// Applies the manifest unchanged and waits until the Deployment is ready.
    pub(crate) fn of_the_manifest(cluster: &'c Cluster) -> Result<Self> {
        Self::apply(cluster, &fs::read_to_string(MANIFEST).context(MANIFEST)?, &[])
    }

    /// Renders the chart with these values, applies it with the images of the trials and without istiod, and waits
    /// until the Deployment is ready.
    pub(crate) fn install_chart(cluster: &'c Cluster, values: &str) -> Result<Self> {
        let helm = env::var_os("HELM").context("HELM names no helm: `make helm` builds it, `make test` names it")?;
        let mut command = Command::new(helm);
        command.args(["template", "sidecar-injector", CHART, SYSTEM, "--kube-version=1.33.0", "--set", values]);
        let output = command.output()?;
        ensure!(output.status.success(), "helm: {}", String::from_utf8_lossy(&output.stderr));
        Self::apply(cluster, &String::from_utf8(output.stdout)?, &Self::without_istiod())
    }

    /// Returns arguments that set the images of the trials and an empty address of istiod. With an address, pods would
    /// wait for istiod's root certificate.
    fn without_istiod() -> [String; 3] {
        [format!("--proxyImage={PROXY}"), format!("--validationImage={VALIDATION}"), "--discoveryAddress=".to_owned()]
    }

    /// Applies a manifest with additional arguments of the program, and waits until the Deployment is ready.
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

    /// Returns the API path of the webhook configuration.
    pub(crate) fn configuration(&self) -> String {
        format!("{CONFIGURATIONS}/{}-kube-system", self.name)
    }

    fn deployment(&self) -> String {
        format!("deployment/{}", self.name)
    }

    fn applied(&self) -> String {
        self.dir.path().join("manifest.json").display().to_string()
    }

    /// Applies the same manifest a second time.
    pub(crate) fn apply_again(&self) -> Result<()> {
        kubectl(&["apply", "--filename", &self.applied()])?;
        Ok(())
    }

    /// Waits until all of the Deployment's pods have its current template and are ready.
    pub(crate) fn rolled_out(&self) -> Result<()> {
        kubectl(&[SYSTEM, "rollout", "status", &self.deployment(), PATIENCE])?;
        Ok(())
    }

    /// Restarts the Deployment, which replaces its pods one after the other.
    pub(crate) fn roll(&self) -> Result<()> {
        kubectl(&[SYSTEM, "rollout", "restart", &self.deployment()])?;
        self.rolled_out()
    }

    /// Scales the Deployment and waits until it has exactly this number of pods.
    pub(crate) fn scale(&self, replicas: usize) -> Result<()> {
        kubectl(&[SYSTEM, "scale", &self.deployment(), &format!("--replicas={replicas}")])?;
        self.cluster.until("pods of the webhook", |_| {
            let pods = self.pods()?;
            ensure!(pods.len() == replicas, "{pods:?}");
            Ok(())
        })?;
        self.rolled_out()
    }

    /// Deletes all pods of the webhook at once and waits for their successors.
    pub(crate) fn delete_pods(&self) -> Result<()> {
        kubectl(&[SYSTEM, "delete", "pods", PODS, PATIENCE])?;
        self.rolled_out()
    }

    /// Deletes one pod of the webhook with its grace period and waits for its successor.
    pub(crate) fn delete_pod(&self) -> Result<()> {
        let pods = self.pods()?;
        kubectl(&[SYSTEM, "delete", pods.first().context("a pod")?, PATIENCE])?;
        self.rolled_out()
    }

    /// Kills one process of the webhook and waits for its successor.
    pub(crate) fn kill(&self) -> Result<()> {
        // Kubernetes does not replace a process that is already terminating, so all of them must be running.
        let before = self.cluster.until("no process is terminating", |_| {
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

    /// Returns the names of the webhook's pods, as `pod/NAME`.
    fn pods(&self) -> Result<Vec<String>> {
        Ok(kubectl(&[SYSTEM, "get", "pods", PODS, "--output=name"])?.lines().map(str::to_owned).collect())
    }

    /// Returns the logs of the webhook's pods.
    pub(crate) fn log(&self) -> Result<String> {
        kubectl(&[SYSTEM, "logs", PODS, "--tail=-1", "--prefix"])
    }

    /// Waits until the logs have a line that contains all of `words`, and returns the line.
    pub(crate) fn wait_for_log(&self, words: &[&str]) -> Result<String> {
        self.cluster.until(&format!("a line with {words:?}"), |_| {
            let log = self.log()?;
            match log.lines().find(|line| words.iter().all(|word| line.contains(word))) {
                Some(line) => Ok(line.to_owned()),
                None => bail!("{log}"),
            }
        })
    }

    /// Returns the caBundle of each webhook in the webhook configuration.
    pub(crate) fn bundles(&self) -> Result<Vec<Value>> {
        let configuration = self.cluster.get(&self.configuration())?;
        let webhooks = configuration["webhooks"].as_array().context("webhooks")?;
        Ok(webhooks.iter().map(|webhook| webhook["clientConfig"]["caBundle"].clone()).collect())
    }
}

impl Drop for Injector<'_> {
    fn drop(&mut self) {
        // The configuration is deleted first. Without the webhook the API server refuses pods as long as the
        // configuration exists.
        let _ = self.cluster.delete(&self.configuration());
        let _ = kubectl(&["delete", "--filename", &self.applied(), "--ignore-not-found"]);
        let _ = kubectl(&[SYSTEM, "delete", "pods", PODS, "--force", "--grace-period=0"]);
        // The program creates the Secret, so no manifest contains it.
        let _ = kubectl(&[SYSTEM, "delete", "secret", "sidecar-injector-certificate", "--ignore-not-found"]);
        let _ = self.cluster.until("the webhook's processes have ended", |_| {
            let left = processes()?;
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        });
    }
}

/// An object in the webhook's namespace, which is deleted when the value is dropped.
pub(crate) struct TemporaryObject<'c> {
    cluster: &'c Cluster,
    /// The object's API path.
    pub(crate) path: String,
}

impl<'c> TemporaryObject<'c> {
    pub(crate) fn new(cluster: &'c Cluster, collection: &str, object: &Value) -> Result<Self> {
        let all = format!("/api/v1/namespaces/kube-system/{collection}");
        let object = cluster.replace(&all, object)?;
        let path = format!("{all}/{}", object["metadata"]["name"].as_str().context("a name")?);
        Ok(Self { cluster, path })
    }
}

impl Drop for TemporaryObject<'_> {
    fn drop(&mut self) {
        let _ = self.cluster.delete(&self.path);
    }
}

/// Returns the webhook's processes, found by name: the PID namespace contains only processes of the cluster.
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
