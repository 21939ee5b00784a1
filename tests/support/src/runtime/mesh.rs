//! What a mesh puts on a node: a run directory with kubeconfig and agent, and the plugin's entry in the chain.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use istio_cni::contract;
use serde_json::Value;

use super::agent::Agent;
use super::api_server::ApiServer;
use super::cluster::Cluster;
use super::conflist;
use super::node::Node;
use super::pod::Pod;

/// Run directory and doubles, until it is dropped.
pub struct Mesh {
    run_dir: PathBuf,
    cluster: Arc<Cluster>,
    agent: Option<Agent>,
    api_server: Option<ApiServer>,
}

impl Mesh {
    /// A run directory of its own, with nobody to ask.
    pub fn new(node: &Node) -> Result<Self> {
        let run_dir = node.new_dir("run")?;
        Ok(Self { run_dir, cluster: Arc::default(), agent: None, api_server: None })
    }

    /// The same with the agent.
    pub fn with_agent(mut self) -> Result<Self> {
        self.agent = Some(Agent::start(&self.run_dir, self.cluster.clone())?);
        Ok(self)
    }

    /// The same with an agent that is behind: it knows of this pod alone.
    pub fn with_agent_that_knows(mut self, pod: &Pod) -> Result<Self> {
        let behind = Cluster::default();
        behind.apply(pod);
        self.agent = Some(Agent::start(&self.run_dir, Arc::new(behind))?);
        Ok(self)
    }

    /// The same with an API server and the kubeconfig that leads to it.
    pub fn with_api_server(mut self, node: &Node) -> Result<Self> {
        let server = ApiServer::start(node.netns(), self.cluster.clone())?;
        server.write_kubeconfig(&self.run_dir)?;
        self.api_server = Some(server);
        Ok(self)
    }

    /// Ends the API server; the kubeconfig stays, as in an outage.
    pub fn end_api_server(&mut self) {
        self.api_server = None;
    }

    /// What can be asked.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The plugin's run directory.
    pub fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// How long the plugin has worked for the last ADD, by its own log.
    pub fn last_add_took(&self) -> Result<Duration> {
        let path = self.run_dir.join(contract::LOG_FILE);
        let log = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut adds = lines.filter(|line| line["cmd"] == "ADD").filter_map(|line| line["elapsed_us"].as_u64());
        Ok(Duration::from_micros(adds.next_back().with_context(|| format!("no ADD with elapsed_us in\n{log}"))?))
    }

    /// The plugin's entry in the chain, as the installer writes it.
    pub fn plugin(&self) -> Value {
        conflist::plugin(&self.run_dir)
    }

    /// The same entry without the capability: the plugin then learns annotations from those it asks alone.
    pub fn plugin_without_capability(&self) -> Value {
        let mut plugin = self.plugin();
        if let Some(object) = plugin.as_object_mut() {
            object.remove("capabilities");
        }
        plugin
    }
}
