//! Tests pods in gVisor, which have a network stack of their own, so rules in the node's kernel do not affect them. The agent gets the
//! handler from the RuntimeClass, and the handler's type from the runtime's configuration.

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::found::Link;
use crate::stage::{Case, Missing};
use test_support::runtime::conflist::Families;
use test_support::runtime::control_plane::ControlPlane;
use test_support::runtime::gvisor::{HANDLER, TYPE};
use test_support::runtime::installer::Installer;
use test_support::runtime::node::Node;
use test_support::runtime::outside;
use test_support::runtime::pod::{APP_PORT, Pod};
use test_support::runtime::programs::Programs;

pub(crate) const CASES: &[Case] = &[
    ("a_pod_in_gvisor_starts_and_an_event_says_that_it_is_not_redirected", starts),
    ("a_pod_in_gvisor_is_refused_where_the_node_refuses_sandboxes", refused),
];

/// The name of the RuntimeClass. Neither it nor the handler's name contains a word that denotes a sandboxed runtime.
const CLASS: &str = "tenant";

/// Starts an agent with these flags and calls `act` with an injected pod in gVisor and one without a sidecar.
fn with_agent(node: &Node, flags: &[&str], act: impl FnOnce([&Pod; 2], &ControlPlane) -> Result<()>) -> Result<()> {
    Programs::gvisor().map_err(Missing)?;
    let _link = Link::of(node)?;
    node.load_chain(Families::V4, None)?;
    let pod = Pod::injected("shop", "web-0").in_class(CLASS, HANDLER);
    let plain = Pod::plain("shop", "plain-0").in_class(CLASS, HANDLER);
    let plane = ControlPlane::start(node)?;
    [&pod, &plain].into_iter().for_each(|pod| plane.schedule(pod));
    plane.api().put(json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": { "name": CLASS }, "handler": HANDLER,
    }));
    let mut installer = Installer::finding(node, plane.address(), flags)?;
    let log = || fs::read_to_string(node.dir().join("install-cni.log")).unwrap_or_default();
    installer.ready().with_context(log)?;
    act([&pod, &plain], &plane).with_context(log)?;
    plane.delete_daemon_set();
    installer.end().with_context(log)?;
    plane.end();
    Ok(())
}

fn described() -> String {
    format!("(runtime handler {HANDLER} ({TYPE}))")
}

fn starts(node: &Node) -> Result<()> {
    with_agent(node, &[], |[pod, _], plane| {
        let mut sandbox = node.run(pod)?;
        sandbox.start_containers()?;
        let here: SocketAddr = (sandbox.ip()?, APP_PORT).into();
        // The rules are in the kernel, but the pod's packets do not pass them.
        let rules = sandbox.netns()?.all_rules()?;
        ensure!(rules.contains("ISTIO_INBOUND"), "{rules}");
        assert_eq!(outside::connect(node.netns(), here)?.hops(), [("app", here)]);
        let message = plane.event(pod, "SandboxNotRedirected")?;
        ensure!(message.contains(&described()), "{message}");
        assert_eq!(plane.api().list("events")[0]["involvedObject"]["uid"], pod.uid.as_str());
        sandbox.remove()
    })
}

fn refused(node: &Node) -> Result<()> {
    with_agent(node, &["--refuse-sandboxes"], |[pod, plain], plane| {
        let refusal = match node.run(pod) {
            Ok(_) => None,
            Err(error) => Some(format!("{error:#}")),
        };
        let refusal = refusal.context("the pod started")?;
        ensure!(refusal.contains(&format!("pod shop/web-0 runs in a sandbox {}", described())), "{refusal}");
        assert_eq!(plane.api().list("events"), [] as [Value; 0]);
        node.run(plain)?.remove()
    })
}
