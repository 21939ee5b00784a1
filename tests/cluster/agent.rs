//! Installs the agent with kubectl from `manifests/` or with Helm from the chart, and removes it when the value is dropped.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use contract::{KUBECONFIG, PLUGIN_NAME, RUN_DIR};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::chain::{NETWORK, PLUGINS};
use crate::cluster::Cluster;
use crate::stage::Stage;
use test_support::runtime::wait;

const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/istio-cni.yaml");
/// Two images with the same programs: the one that the manifests name, and one that upgrades switch to.
pub(crate) const IMAGES: [&str; 2] = ["localhost/install-cni:0.1.0", "localhost/install-cni:next"];
pub(crate) const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/install/helm/istio-cni");
const RELEASE: &str = "istio-cni";
const DAEMON_SET: &str = "daemonset/istio-cni-node";
/// The flag with kubectl's time limit which, like [`wait::TIMEOUT`], is far above what a success needs.
pub(crate) const PATIENCE: &str = "--timeout=180s";
/// Arguments of `kubectl delete`: the first constant deletes the DaemonSet and keeps its roles, the second one deletes
/// all objects of the manifests.
pub(crate) const DAEMON_SET_ALONE: &[&str] = &["--namespace=kube-system", DAEMON_SET];
pub(crate) const EVERYTHING: &[&str] = &["--filename", MANIFESTS];

/// An installed agent.
pub(crate) struct Agent<'c> {
    cluster: &'c Cluster,
    /// The node's network configuration without the plugin.
    pub(crate) original: String,
    /// The time from the plugin's appearance in the chain until the DaemonSet was ready.
    pub(crate) ready_after: Duration,
}

impl<'c> Agent<'c> {
    /// Applies the manifests and waits until the DaemonSet is ready.
    pub(crate) fn install(stage: &Stage<'c>) -> Result<Self> {
        Self::install_by(stage, || kubectl(&["apply", "--filename", MANIFESTS]))
    }

    /// Installs the chart with values such as `repair.mode=repair`, and waits until the DaemonSet is ready.
    pub(crate) fn install_chart(stage: &Stage<'c>, values: &[&str]) -> Result<Self> {
        Self::install_from(stage, CHART, values)
    }

    /// Installs another chart under the same release name.
    pub(crate) fn install_from(stage: &Stage<'c>, chart: &str, values: &[&str]) -> Result<Self> {
        Self::install_by(stage, || release("install", chart, values))
    }

    /// Upgrades the release to the same chart with other values and waits for the rollout.
    pub(crate) fn upgrade_chart(&self, values: &[&str]) -> Result<()> {
        self.upgrade_from(CHART, values)
    }

    /// Upgrades the release to another chart and waits for the rollout.
    pub(crate) fn upgrade_from(&self, chart: &str, values: &[&str]) -> Result<()> {
        release("upgrade", chart, values)?;
        self.rolled_out()
    }

    /// Uninstalls the release and waits until the agent's pod is gone.
    pub(crate) fn uninstall(&self) -> Result<()> {
        helm(&["uninstall", RELEASE, "--namespace=kube-system"])?;
        self.is_gone()
    }

    fn install_by(stage: &Stage<'c>, install: impl FnOnce() -> Result<String>) -> Result<Self> {
        let original = fs::read_to_string(NETWORK)?;
        let mut agent = Self { cluster: stage.cluster, original, ready_after: Duration::ZERO };
        agent.ready_after = thread::scope(|scope| {
            let chaining = scope
                .spawn(|| wait::until("the plugin is in the chain", || agent.is_chained()).map(|()| Instant::now()));
            install()?;
            agent.rolled_out()?;
            let ready = Instant::now();
            let chained = chaining.join().map_err(|_| anyhow!("the thread that observes the chain has panicked"))??;
            anyhow::Ok(ready.saturating_duration_since(chained))
        })?;
        agent.is_chained()?;
        Ok(agent)
    }

    /// Waits until all of the DaemonSet's pods have its current template and are ready.
    pub(crate) fn rolled_out(&self) -> Result<()> {
        kubectl(&["--namespace=kube-system", "rollout", "status", DAEMON_SET, PATIENCE])?;
        Ok(())
    }

    /// Sets the DaemonSet's image and waits for the rollout.
    pub(crate) fn roll(&self, image: &str) -> Result<()> {
        kubectl(&["--namespace=kube-system", "set", "image", DAEMON_SET, &format!("install-cni={image}")])?;
        self.rolled_out()
    }

    /// Deletes the agent's pod and waits until the DaemonSet's next pod is ready.
    pub(crate) fn delete_pod(&self) -> Result<()> {
        kubectl(&["--namespace=kube-system", "delete", "pod", "--selector=k8s-app=istio-cni-node", PATIENCE])?;
        self.rolled_out()
    }

    /// Kills the agent's process and waits for its successor.
    pub(crate) fn kill(&self) -> Result<()> {
        let before = process()?;
        kill(before, Signal::SIGKILL)?;
        self.cluster.until("another process of the agent", |_| {
            let after = process()?;
            ensure!(after != before, "{after}");
            Ok(())
        })?;
        self.rolled_out()
    }

    /// Runs `kubectl delete` with these arguments and waits until the agent's pod is gone.
    pub(crate) fn delete(&self, args: &[&str]) -> Result<()> {
        kubectl(&[&["delete"], args].concat())?;
        self.is_gone()
    }

    fn is_gone(&self) -> Result<()> {
        self.cluster.until("the agent's pod is gone", |cluster| {
            let pods = cluster.get("/api/v1/namespaces/kube-system/pods")?;
            ensure!(pods["items"].as_array().is_some_and(Vec::is_empty), "{pods}");
            Ok(())
        })
    }

    /// Fails unless the chain is the original one with the plugin appended, and the plugin's binary exists.
    pub(crate) fn is_chained(&self) -> Result<()> {
        let (now, mut expected) = (network()?, serde_json::from_str::<Value>(&self.original)?);
        let entry = now["plugins"].as_array().and_then(|plugins| plugins.last()).context("plugins")?;
        ensure!(entry["type"] == PLUGIN_NAME, "{now}");
        expected["plugins"].as_array_mut().context("plugins")?.push(entry.clone());
        ensure!(now == expected, "{now} is not {expected}");
        let plugin = Path::new(PLUGINS).join(PLUGIN_NAME);
        ensure!(plugin.is_file(), "{} does not exist", plugin.display());
        Ok(())
    }

    /// Sends a signal to the agent's process.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(process()?, signal)?)
    }

    /// Waits until the log has a line that contains all of `words`.
    pub(crate) fn wait_for_log(&self, words: &[&str]) -> Result<()> {
        self.cluster.until(&format!("a line with {words:?}"), |_| {
            let log = kubectl(&["--namespace=kube-system", "logs", DAEMON_SET])?;
            ensure!(log.lines().any(|line| words.iter().all(|word| line.contains(word))), "{log}");
            Ok(())
        })
    }

    /// Waits until a metric has the expected value.
    pub(crate) fn wait_for_metric(&self, metric: &str, expected: usize) -> Result<()> {
        let pods = self.cluster.get("/api/v1/namespaces/kube-system/pods")?;
        let name = pods["items"][0]["metadata"]["name"].as_str().context("the agent's pod")?;
        let path = format!("/api/v1/namespaces/kube-system/pods/{name}:15014/proxy/metrics");
        self.cluster.until(&format!("{metric} is {expected}"), |_| {
            let all = kubectl(&["get", "--raw", &path])?;
            ensure!(all.lines().any(|line| line == format!("{metric} {expected}")), "{all}");
            Ok(())
        })
    }

    /// Returns a description of each file and change that the agent has left on the node.
    pub(crate) fn leftovers(&self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        if network()? != serde_json::from_str::<Value>(&self.original)? {
            left.push(format!("{NETWORK}: {}", network()?));
        }
        let files = [Path::new(PLUGINS).join(PLUGIN_NAME), Path::new(RUN_DIR).join(KUBECONFIG)];
        left.extend(files.iter().filter(|path| path.exists()).map(|path| path.display().to_string()));
        for dir in [PLUGINS, "/etc/cni/net.d"] {
            let names = fs::read_dir(dir)?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
            left.extend(names.filter(|name| name.contains("istio") || name.contains("tmp")));
        }
        Ok(left)
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        let _ = helm(&["uninstall", RELEASE, "--namespace=kube-system", "--ignore-not-found"]);
        let _ = kubectl(&["delete", "--filename", MANIFESTS, "--ignore-not-found"]);
        let _ = self.is_gone();
        // A failed trial must not affect the next.
        let _ = self.cluster.load_network(&self.original);
        let _ = fs::remove_file(Path::new(PLUGINS).join(PLUGIN_NAME));
        let _ = fs::remove_dir_all(RUN_DIR);
    }
}

/// Returns the node's current network configuration.
fn network() -> Result<Value> {
    let text = fs::read_to_string(NETWORK).context(NETWORK)?;
    serde_json::from_str(&text).with_context(|| format!("{NETWORK}: {text:?}"))
}

/// Returns the agent's process, found by name: the PID namespace contains only processes of the cluster.
fn process() -> Result<Pid> {
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        if fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm.trim() == "install-cni") {
            return Ok(Pid::from_raw(pid));
        }
    }
    bail!("no process install-cni")
}

/// Runs kubectl as the cluster's administrator and returns its output.
pub(crate) fn kubectl(args: &[&str]) -> Result<String> {
    run(OsStr::new("kubectl"), args)
}

/// Upgrades to the same chart with other values, without waiting for the rollout.
pub(crate) fn upgrade_chart(values: &[&str]) -> Result<()> {
    release("upgrade", CHART, values).map(drop)
}

fn release(verb: &str, chart: &str, values: &[&str]) -> Result<String> {
    let set = values.iter().flat_map(|value| ["--set", value]);
    helm(&[verb, RELEASE, chart, "--namespace=kube-system"].into_iter().chain(set).collect::<Vec<_>>())
}

/// Runs helm as the cluster's administrator and returns its output.
pub(crate) fn helm(args: &[&str]) -> Result<String> {
    run(&std::env::var_os("HELM").context("HELM")?, args)
}

fn run(program: &OsStr, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).output().with_context(|| program.display().to_string())?;
    ensure!(output.status.success(), "{} {args:?}: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
