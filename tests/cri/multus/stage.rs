//! A node with Multus, an API server and the installer; its files are removed when the value is dropped.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use contract::{LOG_FILE, PLUGIN_NAME, REMOVED_MARKER};
use serde_json::{Value, json};

use crate::redirect::assert_redirected;
use crate::stage::Missing;
use test_support::runtime::conflist::Families;
use test_support::runtime::control_plane::ControlPlane;
use test_support::runtime::installer::{Installer, names_plugin};
use test_support::runtime::multus::Multus;
use test_support::runtime::node::Node;
use test_support::runtime::pod::Pod;
use test_support::runtime::programs::Programs;
use test_support::runtime::sandbox::Sandbox;

/// The flag that the chart's value `cniConfFileName` sets, with the file of the pod network.
pub(super) const NAMED: &str = "--cni-conf-name=10-pods.conflist";
/// The annotation of a pod that names its additional networks.
pub(super) const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

pub(super) struct Stage<'n> {
    pub(super) node: &'n Node,
    pub(super) multus: Multus<'n>,
    /// The chain of the pod network before the installation.
    pub(super) chain: String,
    plane: ControlPlane,
    plugin: PathBuf,
}

impl<'n> Stage<'n> {
    /// Loads a chain without the plugin, and installs Multus without a configuration.
    pub(super) fn new(node: &'n Node) -> Result<Self> {
        let programs = Programs::multus().map_err(Missing)?;
        node.load_chain(Families::V4, None)?;
        let plugin = fs::canonicalize(node.plugins().join(PLUGIN_NAME))?;
        let (plane, multus) = (ControlPlane::start(node)?, Multus::install(node, &programs)?);
        Ok(Self { node, multus, chain: fs::read_to_string(node.network())?, plane, plugin })
    }

    /// Lets the program in Multus' DaemonSet copy the chain, and waits until the runtime has loaded the copy.
    pub(super) fn copy_chain(&mut self, args: &[&str]) -> Result<()> {
        self.multus.start(self.plane.address(), args)?;
        self.node.loaded_from(&self.multus.list(), "Multus' copy of the chain", is_multus)
    }

    /// Lets the program in Multus' DaemonSet copy a list whose Multus plugin has these network keys, and waits until the runtime has loaded
    /// it.
    pub(super) fn configure_list(&mut self, networks: Value) -> Result<()> {
        let multus = self.conf("1.0.0", networks);
        let list = json!({ "cniVersion": "1.0.0", "name": multus["name"], "plugins": [multus] });
        self.configure("00-multus.conflist", &list)
    }

    /// Lets the program in Multus' DaemonSet copy this configuration, and waits until the runtime has loaded it.
    pub(super) fn configure(&mut self, name: &str, conf: &Value) -> Result<()> {
        let file = self.node.new_dir("multus")?.join(name);
        fs::write(&file, conf.to_string())?;
        self.multus.start(self.plane.address(), &[&format!("--multus-conf-file={}", file.display())])?;
        self.node.loaded_from(&self.node.networks().join(name), "Multus' configuration", is_multus)
    }

    /// Returns the configuration of Multus with these keys for its networks.
    pub(super) fn conf(&self, version: &str, networks: Value) -> Value {
        let mut conf = networks;
        conf["cniVersion"] = json!(version);
        conf["name"] = json!("multus-cni-network");
        conf["type"] = json!("multus");
        conf["kubeconfig"] = json!(self.multus.kubeconfig());
        conf
    }

    /// Starts the installer.
    pub(super) fn install(&self, args: &[&str]) -> Result<Installer<'n>> {
        Installer::start(self.node, self.plane.address(), args)
    }

    /// Starts the installer with a directory of configurations that only Multus reads.
    pub(super) fn install_in(&self, networks: &Path, args: &[&str]) -> Result<Installer<'n>> {
        Installer::start_in(self.node, networks, self.plane.address(), args)
    }

    /// Waits until the installer is ready, and the runtime has loaded this file with the plugin in its chain.
    pub(super) fn chained_into(&self, agent: &mut Installer<'_>, file: &Path) -> Result<()> {
        agent.installed()?;
        self.node.loaded_from(file, "the chain with the plugin", names_plugin)
    }

    /// Ends the installer after its DaemonSet was deleted, so that it removes the plugin, and checks that the pod network has its
    /// former chain.
    pub(super) fn uninstall(&self, agent: Installer<'_>) -> Result<()> {
        self.plane.delete_daemon_set();
        agent.end()?;
        ensure!(!self.node.plugins().join(PLUGIN_NAME).exists(), "the plugin is still on the node");
        assert_eq!(fs::read_to_string(self.node.network())?, self.chain);
        Ok(())
    }

    /// Responds to requests for a NetworkAttachmentDefinition without a configuration, whose name refers to a file in Multus' directory.
    pub(super) fn define(&self, namespace: &str, name: &str) {
        let path = format!("/apis/k8s.cni.cncf.io/v1/namespaces/{namespace}/network-attachment-definitions/{name}");
        let definition = json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": { "namespace": namespace, "name": name },
        });
        self.plane.api().respond(&path, 200, definition.to_string());
    }

    /// Creates a pod and its sandbox. Requests for the pod's status get a fixed response, because Multus writes the status in Protobuf,
    /// which the double cannot decode.
    pub(super) fn run(&self, pod: &Pod) -> Result<Sandbox<'n>> {
        self.plane.schedule(pod);
        let path = format!("/api/v1/namespaces/{}/pods/{}/status", pod.namespace, pod.name);
        self.plane.api().respond(&path, 200, pod.object().to_string());
        self.node.run(pod)
    }

    /// Runs an injected pod and checks that it is redirected, by one ADD of the plugin.
    pub(super) fn run_redirected(&self, agent: &Installer<'_>, pod: &Pod) -> Result<Sandbox<'n>> {
        let mut sandbox = self.run(pod)?;
        sandbox.start_containers()?;
        let rules = sandbox.netns()?.all_rules()?;
        assert_redirected(self.node, &sandbox, sandbox.ip()?).with_context(|| format!("the rules: {rules}"))?;
        assert_eq!(adds(agent, pod)?, 1, "calls of ADD for {}", pod.name);
        Ok(sandbox)
    }

    /// Checks that Multus' copy of the chain is the chain without the plugin.
    pub(super) fn assert_copy_is_bare(&self) -> Result<()> {
        let copy: Value = serde_json::from_str(&fs::read_to_string(self.multus.list())?)?;
        let chain: Value = serde_json::from_str(&self.chain)?;
        assert_eq!(copy["plugins"][0]["delegates"], json!([chain]), "{copy}");
        Ok(())
    }

    /// Checks that a pod starts without rules, and can be removed.
    pub(super) fn starts_without_the_plugin(&self, name: &str) -> Result<()> {
        let sandbox = self.run(&Pod::injected("shop", name))?;
        assert_eq!(sandbox.netns()?.all_rules()?, "", "rules of {name}");
        sandbox.remove()
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        for name in [PLUGIN_NAME, REMOVED_MARKER] {
            let _ = fs::remove_file(self.node.plugins().join(name));
        }
        let _ = symlink(&self.plugin, self.node.plugins().join(PLUGIN_NAME));
    }
}

/// Returns the number of ADD calls for a pod, according to the plugin's log.
pub(super) fn adds(agent: &Installer<'_>, pod: &Pod) -> Result<usize> {
    let path = agent.run_dir().join(LOG_FILE);
    let log = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let name = format!("{}/{}", pod.namespace, pod.name);
    Ok(lines.filter(|line| line["cmd"] == "ADD" && line["pod"] == name && line["verdict"].is_string()).count())
}

fn is_multus(list: &str) -> bool {
    list.contains("\"multus\"")
}
