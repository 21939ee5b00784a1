//! Tests that pods that were redirected before the plugin's removal can end, and that no file of the plugin stays. CRI-O calls DEL with the
//! chain that was cached at ADD.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use contract::{PLUGIN_NAME, REMOVED_MARKER};
use serde_json::{Value, json};

use crate::stage::Case;
use test_support::runtime::conflist::{self, Families};
use test_support::runtime::engine::Engine;
use test_support::runtime::installer::names_plugin;
use test_support::runtime::mesh::Mesh;
use test_support::runtime::node::Node;
use test_support::runtime::pod::Pod;
use test_support::runtime::programs::static_build;

pub(crate) const CASES: &[Case] = &[
    ("removal_edits_the_cached_chains_of_running_pods", with_cache),
    ("a_stub_stays_while_cached_chains_name_it", without_cache),
];

/// libcni's cache, as an argument of `uninstall`.
const CACHE: &str = "--mounted-cni-cache-dir=/var/lib/cni";

/// The plugin as a file in the plugin directory instead of a link to the build; the link is restored when the value is dropped.
struct Installed<'n> {
    node: &'n Node,
    build: PathBuf,
    mesh: Option<Mesh>,
}

impl<'n> Installed<'n> {
    fn new(node: &'n Node) -> Result<Self> {
        let mesh = Mesh::new(node)?.with_agent()?;
        let path = node.plugins().join(PLUGIN_NAME);
        let build = fs::canonicalize(&path)?;
        fs::remove_file(&path)?;
        fs::copy(&build, &path)?;
        node.load_chain(Families::V4, Some(&mesh.plugin()))?;
        Ok(Self { node, build, mesh: Some(mesh) })
    }

    fn mesh(&self) -> Result<&Mesh> {
        self.mesh.as_ref().context("the agent has ended")
    }

    /// Runs `install-cni uninstall` after the agent has ended, and waits until the runtime has loaded the chain without the plugin.
    fn uninstall(&mut self, args: &[&str]) -> Result<()> {
        let run_dir = self.mesh.take().map(|mesh| mesh.run_dir().to_owned());
        let program = static_build("install-cni").map_err(anyhow::Error::msg)?;
        let mut command = self.node.command(&program);
        command.arg("uninstall");
        for (flag, path) in [
            ("mounted-cni-net-dir", self.node.networks()),
            ("mounted-cni-bin-dir", self.node.plugins()),
            ("cni-bin-source-dir", self.node.dir().join("no-image")),
            ("cni-agent-run-dir", run_dir.unwrap_or_else(|| self.node.dir().join("no-run"))),
        ] {
            command.arg(format!("--{flag}={}", path.display()));
        }
        let output = command.args(args).output()?;
        ensure!(output.status.success(), "{output:?}");
        self.node.loaded("the chain without the plugin", |list| !names_plugin(list))
    }

    /// Returns which of the plugin's files are in the plugin directory.
    fn files(&self) -> Vec<&'static str> {
        let dir = self.node.plugins();
        [PLUGIN_NAME, REMOVED_MARKER].into_iter().filter(|name| fs::symlink_metadata(dir.join(name)).is_ok()).collect()
    }
}

impl Drop for Installed<'_> {
    fn drop(&mut self) {
        for name in self.files() {
            let _ = fs::remove_file(self.node.plugins().join(name));
        }
        let _ = std::os::unix::fs::symlink(&self.build, self.node.plugins().join(PLUGIN_NAME));
    }
}

fn with_cache(node: &Node) -> Result<()> {
    let mut installed = Installed::new(node)?;
    let pods = [Pod::injected("shop", "web-0"), Pod::injected("shop", "web-1")];
    pods.iter().try_for_each(|pod| installed.mesh().map(|mesh| mesh.cluster().apply(pod)))?;
    let [first, second] = [node.run(&pods[0])?, node.run(&pods[1])?];
    let before = node.cached_add(first.id())?;
    installed.uninstall(&[CACHE])?;
    assert_eq!(installed.files(), Vec::<&str>::new());
    let after = node.cached_add(first.id())?;
    assert_eq!(after["result"], before["result"]);
    // Pods must end and start before and after a restart of the runtime, at which CRI-O calls CHECK.
    first.remove()?;
    node.restart_runtime()?;
    node.run(&Pod::injected("shop", "web-2"))?.remove()?;
    second.remove()
}

fn without_cache(node: &Node) -> Result<()> {
    let mut installed = Installed::new(node)?;
    let pods = [Pod::injected("shop", "web-0"), Pod::injected("shop", "web-1")];
    pods.iter().try_for_each(|pod| installed.mesh().map(|mesh| mesh.cluster().apply(pod)))?;
    let [first, second] = [node.run(&pods[0])?, node.run(&pods[1])?];
    let mut entry = installed.mesh()?.plugin();
    installed.uninstall(&[])?;
    assert_eq!(installed.files(), [PLUGIN_NAME, REMOVED_MARKER]);
    // A sandbox must start even if the runtime read the chain before the removal.
    entry["prevResult"] = node.cached_add(first.id())?["result"].clone();
    let passed = add(node, entry)?;
    assert_eq!(passed["ips"], node.cached_add(first.id())?["result"]["ips"], "{passed}");
    node.restart_runtime()?;
    first.remove()?;
    assert_eq!(installed.files(), [PLUGIN_NAME, REMOVED_MARKER], "web-1 still needs the stub");
    second.remove()?;
    if *node.engine() == Engine::Containerd {
        // containerd calls DEL with the chain in the configuration directory, and never calls the stub.
        assert_eq!(installed.files(), [PLUGIN_NAME, REMOVED_MARKER]);
        installed.uninstall(&[CACHE])?;
    }
    assert_eq!(installed.files(), Vec::<&str>::new());
    node.run(&Pod::injected("shop", "web-2"))?.remove()
}

/// Calls ADD with a configuration of the plugin, in the runtime's namespaces and without a netns; returns the result.
fn add(node: &Node, mut conf: Value) -> Result<Value> {
    conf["cniVersion"] = "1.0.0".into();
    conf["name"] = conflist::NAME.into();
    conf["runtimeConfig"] = json!({});
    let mut command: Command = node.command(&node.plugins().join(PLUGIN_NAME));
    command.env("CNI_COMMAND", "ADD").env("CNI_CONTAINERID", "late").env("CNI_IFNAME", "eth0");
    command.env("CNI_PATH", node.plugins()).env("CNI_NETNS", Path::new("/run/netns/late"));
    command.env("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=late");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    child.stdin.take().context("no standard input")?.write_all(conf.to_string().as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}
