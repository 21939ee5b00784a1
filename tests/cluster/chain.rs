//! Adds the plugin to the node's CNI chain without an agent, and removes it when the value is dropped.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use contract::{KUBECONFIG, PLUGIN_NAME, RUN_DIR};
use serde_json::{Value, json};

use crate::account::Account;
use crate::cluster::Cluster;
use crate::stage::Stage;
use test_support::runtime::conflist;

/// The node's only network.
pub(crate) const NETWORK: &str = "/etc/cni/net.d/10-network.conflist";
/// The directory of the CNI plugins.
pub(crate) const PLUGINS: &str = "/opt/cni/bin";

/// A CNI chain that contains the plugin. Without an agent, the plugin looks pods up at the API server.
pub(crate) struct Chain<'c> {
    cluster: &'c Cluster,
    with: String,
    without: String,
}

impl<'c> Chain<'c> {
    /// Writes plugin, kubeconfig and chain entry to the node.
    pub(crate) fn install(stage: &Stage<'c>) -> Result<Self> {
        let rules = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }]);
        let account = Account::new(stage, "plugin", &rules)?;
        fs::create_dir_all(RUN_DIR)?;
        account.write_kubeconfig(&Path::new(RUN_DIR).join(KUBECONFIG))?;
        fs::copy(&stage.cluster.plugin, Path::new(PLUGINS).join(PLUGIN_NAME))?;
        let without = fs::read_to_string(NETWORK)?;
        let mut list: Value = serde_json::from_str(&without)?;
        let plugins = list["plugins"].as_array_mut().context("a list of plugins")?;
        plugins.push(conflist::plugin(Path::new(RUN_DIR)));
        let chain = Self { cluster: stage.cluster, with: list.to_string(), without };
        chain.enter()?;
        Ok(chain)
    }

    /// Adds the chain entry.
    pub(crate) fn enter(&self) -> Result<()> {
        self.cluster.load_network(&self.with)
    }

    /// Removes only the chain entry, so that the node is in the state in which pods start before the agent.
    pub(crate) fn leave(&self) -> Result<()> {
        self.cluster.load_network(&self.without)
    }
}

impl Drop for Chain<'_> {
    fn drop(&mut self) {
        let _ = self.leave();
        let _ = fs::remove_file(Path::new(PLUGINS).join(PLUGIN_NAME));
        let _ = fs::remove_dir_all(RUN_DIR);
    }
}
