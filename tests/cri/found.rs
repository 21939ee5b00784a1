//! Tests an agent that finds the directories of the runtime by the runtime's own configuration, which names other ones than the
//! defaults.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use istio_cni::contract::PLUGIN_NAME;
use serde_json::json;

use crate::stage::Case;
use test_support::api::Api;
use test_support::runtime::conflist::{AGENT_NAMESPACE, Families};
use test_support::runtime::installer::{Installer, NODE_NAME};
use test_support::runtime::node::Node;
use test_support::runtime::outside;
use test_support::runtime::pod::{APP_PORT, Pod};
use tokio::runtime::{Builder, Runtime};

pub(crate) const CASES: &[Case] = &[("an_agent_finds_the_directories_of_the_runtime", found)];

pub(crate) const DAEMON_SET: &str = "istio-cni-node";

/// The link to the plugin's build in the plugin directory, which the agent replaces; it is restored when the value is dropped.
pub(crate) struct Link(PathBuf, PathBuf);

impl Link {
    pub(crate) fn of(node: &Node) -> Result<Self> {
        let link = node.plugins().join(PLUGIN_NAME);
        Ok(Self(fs::canonicalize(&link)?, link))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.1);
        let _ = symlink(&self.0, &self.1);
    }
}

/// Starts an API server in the node's netns that has the node, the agent's DaemonSet and these pods.
pub(crate) fn api_server(node: &Node, pods: &[&Pod]) -> Result<(Runtime, Api)> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let listener = node.netns().visit(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?.context("API server")?;
    listener.set_nonblocking(true)?;
    let api = {
        let _inside = runtime.enter();
        Api::serve(tokio::net::TcpListener::from_std(listener)?)
    };
    api.put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE_NAME } }));
    api.put(json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "namespace": AGENT_NAMESPACE, "name": DAEMON_SET },
        "spec": { "selector": {}, "template": { "spec": { "containers": [] } } },
    }));
    for pod in pods {
        let mut object = pod.object();
        object["spec"]["nodeName"] = json!(NODE_NAME);
        object["status"] = json!({ "phase": "Pending" });
        api.put(object);
    }
    Ok((runtime, api))
}

fn found(node: &Node) -> Result<()> {
    let _link = Link::of(node)?;
    node.load_chain(Families::V4, None)?;
    let before = fs::read(node.network())?;
    let pod = Pod::injected("shop", "web-0");
    let (runtime, api) = api_server(node, &[&pod])?;
    let mut installer = Installer::finding(node, api.address(), &[])?;
    let log = || fs::read_to_string(node.dir().join("install-cni.log")).unwrap_or_default();
    installer.ready().with_context(log)?;
    let mut sandbox = node.run(&pod).with_context(log)?;
    sandbox.start_containers()?;
    let here = (sandbox.ip()?, APP_PORT).into();
    assert_eq!(outside::connect(node.netns(), here)?.hops(), [("istio-proxy/inbound", here), ("app", here)]);
    sandbox.remove()?;
    let said = log();
    let named = format!("the container runtime's directory is used: {} (", node.plugins().display());
    ensure!(said.contains(&named) && !said.contains("/root-"), "{said}");
    api.remove("daemonsets", AGENT_NAMESPACE, DAEMON_SET);
    installer.end().with_context(log)?;
    assert_eq!((fs::read(node.network())?, node.plugins().join(PLUGIN_NAME).exists()), (before, false));
    drop(api);
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}
