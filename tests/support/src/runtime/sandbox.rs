//! A running pod: its sandbox, containers, netns and logs.
//!
//! Dropping the value stops and removes the pod, as a kubelet does.

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

/// The sandbox of a pod on a node.
pub struct Sandbox<'n> {
    node: &'n Node,
    pod: Pod,
    config: PodSandboxConfig,
    id: String,
    containers: BTreeMap<&'static str, String>,
}

impl<'n> Sandbox<'n> {
    /// Creates the sandbox.
    pub(super) fn run(node: &'n Node, pod: &Pod, config: PodSandboxConfig) -> Result<Self> {
        let id = node.cri().run_sandbox(&config, pod.class.map_or("", |(_, handler)| handler))?;
        Ok(Self { node, pod: pod.clone(), config, id, containers: BTreeMap::new() })
    }

    /// Returns the sandbox's ID, `CNI_CONTAINERID`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the pod's description.
    pub fn pod(&self) -> &Pod {
        &self.pod
    }

    /// Starts the pod's containers and waits until each logs that it listens.
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

    /// Runs a container until it exits and returns its exit code. `attempt` distinguishes containers of the same name.
    pub fn run_to_end(&self, container: &Container, attempt: u32) -> Result<i32> {
        let mut config = container.config();
        config.metadata.get_or_insert_default().attempt = attempt;
        let id = self.node.cri().start_container(&self.id, &self.config, config)?;
        wait::until(&format!("{} of {} ends", container.name, self.pod.name), || self.node.cri().exit_code(&id))
    }

    /// Returns the lines of a container's log.
    pub fn log(&self, container: &Container) -> Result<Vec<String>> {
        let path = format!("{}/{}", self.config.log_directory, container.log_name());
        let text = fs::read_to_string(&path).context(path)?;
        // The format of a line is `TIME STREAM F TEXT`.
        Ok(text.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).map(str::to_owned).collect())
    }

    /// Sends a request from a container, as its user, and returns the path of the request.
    pub fn connect(&self, container: &str, address: SocketAddr) -> Result<Trace> {
        let id = self.containers.get(container).with_context(|| format!("{container} has not been started"))?;
        let output = self.node.cri().exec(id, &["/pod_app", "connect", &address.to_string()])?;
        if output.exit_code != 0 {
            bail!("request from {container} to {address}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        String::from_utf8(output.stdout)?.parse().with_context(|| format!("request from {container} to {address}"))
    }

    /// Returns the pod's addresses, in the order of the families; empty if the runtime reports none.
    pub fn ips(&self) -> Result<Vec<IpAddr>> {
        let status = self.status()?.status.context("no status")?;
        let network = status.network.context("no network")?;
        let others = network.additional_ips.iter().map(|ip| ip.ip.as_str());
        let all = std::iter::once(network.ip.as_str()).chain(others).filter(|ip| !ip.is_empty());
        all.map(|ip| Ok(ip.parse()?)).collect()
    }

    /// Returns the pod's first address.
    pub fn ip(&self) -> Result<IpAddr> {
        self.ips()?.first().copied().context("the pod has no address")
    }

    /// Returns the path of the pod's netns as the runtime reports it, `CNI_NETNS`.
    pub fn netns_path(&self) -> Result<String> {
        let info = self.status()?.info.remove("info").context("no verbose status")?;
        let info: Value = serde_json::from_str(&info)?;
        let namespaces = info["runtimeSpec"]["linux"]["namespaces"].as_array().context("no namespaces")?;
        let network = namespaces.iter().find(|namespace| namespace["type"] == "network");
        Ok(network.and_then(|network| network["path"].as_str()).context("no network namespace")?.to_owned())
    }

    /// Opens the pod's netns.
    pub fn netns(&self) -> Result<Netns> {
        self.node.open_netns(&self.netns_path()?)
    }

    /// Stops the sandbox and its containers, for which the runtime calls DEL.
    pub fn stop(&self) -> Result<()> {
        self.node.cri().stop_sandbox(&self.id)
    }

    /// Stops and removes the sandbox. The CRI accepts the second removal, at drop.
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
