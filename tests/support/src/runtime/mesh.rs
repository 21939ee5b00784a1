//! The parts that the mesh adds to a test node: a run directory with a kubeconfig and an agent's socket, and the
//! plugin's chain entry.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::agent::Agent;
use super::api_server::ApiServer;
use super::cluster::Cluster;
use super::conflist;
use super::node::Node;
use super::pod::Pod;

/// A run directory with doubles of agent and API server, which run until the value is dropped.
pub struct Mesh {
    run_dir: PathBuf,
    cluster: Arc<Cluster>,
    agent: Option<Agent>,
    api_server: Option<ApiServer>,
}

impl Mesh {
    /// Creates a run directory without agent and API server.
    pub fn new(node: &Node) -> Result<Self> {
        let run_dir = node.new_dir("run")?;
        Ok(Self { run_dir, cluster: Arc::default(), agent: None, api_server: None })
    }

    /// Adds an agent.
    pub fn with_agent(mut self) -> Result<Self> {
        self.agent = Some(Agent::start(&self.run_dir, self.cluster.clone())?);
        Ok(self)
    }

    /// Adds an agent whose only pod is this one.
    pub fn with_outdated_agent(mut self, pod: &Pod) -> Result<Self> {
        let outdated = Cluster::default();
        outdated.apply(pod);
        self.agent = Some(Agent::start(&self.run_dir, Arc::new(outdated))?);
        Ok(self)
    }

    /// Adds an API server and its kubeconfig.
    pub fn with_api_server(mut self, node: &Node) -> Result<Self> {
        let server = ApiServer::start(node.netns(), self.cluster.clone())?;
        server.write_kubeconfig(&self.run_dir)?;
        self.api_server = Some(server);
        Ok(self)
    }

    /// Stops the API server but keeps the kubeconfig, as in an outage.
    pub fn end_api_server(&mut self) {
        self.api_server = None;
    }

    /// Returns the pods and requests of the doubles.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the plugin's run directory.
    pub fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// Returns the duration of the last ADD in the plugin's log.
    pub fn last_add_took(&self) -> Result<Duration> {
        let path = self.run_dir.join(contract::LOG_FILE);
        let log = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut adds = lines.filter(|line| line["cmd"] == "ADD").filter_map(|line| line["elapsed_us"].as_u64());
        Ok(Duration::from_micros(adds.next_back().with_context(|| format!("no ADD with elapsed_us in\n{log}"))?))
    }

    /// Returns the plugin's chain entry as the installer writes it.
    pub fn plugin(&self) -> Value {
        conflist::plugin(&self.run_dir)
    }

    /// Returns the chain entry without the capability, so that the runtime passes no annotations.
    pub fn plugin_without_capability(&self) -> Value {
        let mut plugin = self.plugin();
        if let Some(object) = plugin.as_object_mut() {
            object.remove("capabilities");
        }
        plugin
    }
}
