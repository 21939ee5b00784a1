//! A running pod: its sandbox, its containers, its network namespace and its logs.
//!
//! Dropping it stops and removes it, as a kubelet does.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, bail};
use k8s_cri::v1::{PodSandboxConfig, PodSandboxStatusResponse};
use serde_json::Value;

use super::netns::Netns;
use super::node::Node;
use super::pod::{Container, Pod};
use super::trace::Trace;
use super::wait;

/// A pod's sandbox on a node.
pub struct Sandbox<'n> {
    node: &'n Node,
    pod: Pod,
    config: PodSandboxConfig,
    id: String,
    containers: BTreeMap<&'static str, String>,
}

impl<'n> Sandbox<'n> {
    /// Makes the sandbox.
    pub(super) fn run(node: &'n Node, pod: &Pod, config: PodSandboxConfig) -> Result<Self> {
        let id = node.cri().run_sandbox(&config)?;
        Ok(Self { node, pod: pod.clone(), config, id, containers: BTreeMap::new() })
    }

    /// The sandbox's id: `CNI_CONTAINERID`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The pod that runs in it.
    pub fn pod(&self) -> &Pod {
        &self.pod
    }

    /// Starts the pod's containers and waits until each says that it listens.
    pub fn start_containers(&mut self) -> Result<()> {
        for container in &self.pod.containers {
            let id = self.node.cri().start_container(&self.id, &self.config, container.config())?;
            self.containers.insert(container.name, id);
        }
        for container in &self.pod.containers {
            wait::until(&format!("{} of {} listens", container.name, self.pod.name), || {
                let log = self.log(container)?;
                if log.iter().any(|line| line.contains("listens")) { Ok(()) } else { bail!("{log:?}") }
            })?;
        }
        Ok(())
    }

    /// Runs a container to its end and returns its exit code; `attempt` tells it from earlier ones of its name.
    pub fn run_to_end(&self, container: &Container, attempt: u32) -> Result<i32> {
        let mut config = container.config();
        config.metadata.get_or_insert_default().attempt = attempt;
        let id = self.node.cri().start_container(&self.id, &self.config, config)?;
        wait::until(&format!("{} of {} ends", container.name, self.pod.name), || self.node.cri().exit_code(&id))
    }

    /// The lines that a container has printed.
    pub fn log(&self, container: &Container) -> Result<Vec<String>> {
        let path = format!("{}/{}", self.config.log_directory, container.log_name());
        let text = fs::read_to_string(&path).context(path)?;
        // Each line is "TIME STREAM F TEXT".
        Ok(text.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).map(str::to_owned).collect())
    }

    /// Asks somebody from inside a container, as that container's user.
    pub fn ask(&self, container: &str, whom: SocketAddr) -> Result<Trace> {
        let id = self.containers.get(container).with_context(|| format!("{container} has not been started"))?;
        let asked = self.node.cri().exec(id, &["/pod_app", "ask", &whom.to_string()])?;
        if asked.exit_code != 0 {
            bail!("{container} asked {whom}: {}", String::from_utf8_lossy(&asked.stderr).trim());
        }
        String::from_utf8(asked.stdout)?.parse().with_context(|| format!("{container} asked {whom}"))
    }

    /// The pod's addresses, the first family's first.
    pub fn ips(&self) -> Result<Vec<IpAddr>> {
        let status = self.status()?.status.context("no status")?;
        let network = status.network.context("no network")?;
        let others = network.additional_ips.iter().map(|ip| ip.ip.as_str());
        std::iter::once(network.ip.as_str()).chain(others).map(|ip| Ok(ip.parse()?)).collect()
    }

    /// The pod's first address.
    pub fn ip(&self) -> Result<IpAddr> {
        self.ips()?.first().copied().context("the pod has no address")
    }

    /// The path by which containerd knows its network namespace: `CNI_NETNS`.
    pub fn netns_path(&self) -> Result<String> {
        let info = self.status()?.info.remove("info").context("no verbose status")?;
        let info: Value = serde_json::from_str(&info)?;
        let namespaces = info["runtimeSpec"]["linux"]["namespaces"].as_array().context("no namespaces")?;
        let network = namespaces.iter().find(|namespace| namespace["type"] == "network");
        Ok(network.and_then(|network| network["path"].as_str()).context("no network namespace")?.to_owned())
    }

    /// Its network namespace.
    pub fn netns(&self) -> Result<Netns> {
        self.node.open_netns(&self.netns_path()?)
    }

    /// Stops it, which is when DEL happens; its containers end.
    pub fn stop(&self) -> Result<()> {
        self.node.cri().stop_sandbox(&self.id)
    }

    /// Stops and removes it, and says whether that went well. Drop's second removal of what is gone is fine by the CRI.
    pub fn remove(self) -> Result<()> {
        self.stop()?;
        self.node.cri().remove_sandbox(&self.id)
    }

    fn status(&self) -> Result<PodSandboxStatusResponse> {
        self.node.cri().sandbox_status(&self.id)
    }
}

impl Drop for Sandbox<'_> {
    fn drop(&mut self) {
        let _ = self.node.cri().stop_sandbox(&self.id);
        let _ = self.node.cri().remove_sandbox(&self.id);
    }
}
