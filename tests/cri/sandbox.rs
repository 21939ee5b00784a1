//! Tests pods in gVisor, whose network stack rules of the node's kernel do not reach, on a node whose agent knows the handler by the
//! RuntimeClass, and the handler's program by the runtime's configuration.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::found::{DAEMON_SET, Link, api_server};
use crate::stage::{Case, Missing};
use test_support::api::Api;
use test_support::runtime::conflist::{AGENT_NAMESPACE, Families};
use test_support::runtime::gvisor::{HANDLER, TYPE};
use test_support::runtime::installer::Installer;
use test_support::runtime::node::Node;
use test_support::runtime::outside;
use test_support::runtime::pod::{APP_PORT, Pod};
use test_support::runtime::programs::Programs;
use test_support::runtime::wait;

pub(crate) const CASES: &[Case] = &[
    ("a_pod_in_gvisor_starts_and_an_event_says_that_it_is_not_redirected", starts),
    ("a_pod_in_gvisor_is_refused_where_the_node_refuses_sandboxes", refused),
];

/// The name of the RuntimeClass, which tells as little as that of the handler.
const CLASS: &str = "tenant";

/// Starts an agent with these flags and calls `act` with an injected pod in gVisor and one without a sidecar.
fn with_agent(node: &Node, flags: &[&str], act: impl FnOnce([&Pod; 2], &Api) -> Result<()>) -> Result<()> {
    Programs::gvisor().map_err(Missing)?;
    let _link = Link::of(node)?;
    node.load_chain(Families::V4, None)?;
    let pod = Pod::injected("shop", "web-0").in_class(CLASS, HANDLER);
    let plain = Pod::plain("shop", "plain-0").in_class(CLASS, HANDLER);
    let (runtime, api) = api_server(node, &[&pod, &plain])?;
    api.put(json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": { "name": CLASS }, "handler": HANDLER,
    }));
    let mut installer = Installer::finding(node, api.address(), flags)?;
    let log = || fs::read_to_string(node.dir().join("install-cni.log")).unwrap_or_default();
    installer.ready().with_context(log)?;
    act([&pod, &plain], &api).with_context(log)?;
    api.remove("daemonsets", AGENT_NAMESPACE, DAEMON_SET);
    installer.end().with_context(log)?;
    drop(api);
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

fn described() -> String {
    format!("(runtime handler {HANDLER} ({TYPE}))")
}

fn starts(node: &Node) -> Result<()> {
    with_agent(node, &[], |[pod, _], api| {
        let mut sandbox = node.run(pod)?;
        sandbox.start_containers()?;
        let here: SocketAddr = (sandbox.ip()?, APP_PORT).into();
        // The kernel's rules are there, and no packet of the sandbox passes them.
        let rules = sandbox.netns()?.all_rules()?;
        ensure!(rules.contains("ISTIO_INBOUND"), "{rules}");
        assert_eq!(outside::connect(node.netns(), here)?.hops(), [("app", here)]);
        let event = wait::until("an Event on the pod", || api.list("events").pop().context("none"))?;
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
        assert_eq!(text("/reason"), Some("SandboxNotRedirected"), "{event}");
        assert_eq!(text("/involvedObject/uid"), Some(pod.uid.as_str()), "{event}");
        let message = text("/message").unwrap_or_default();
        ensure!(message.contains(&described()), "{event}");
        sandbox.remove()
    })
}

fn refused(node: &Node) -> Result<()> {
    with_agent(node, &["--refuse-sandboxes"], |[pod, plain], api| {
        let refusal = match node.run(pod) {
            Ok(_) => None,
            Err(error) => Some(format!("{error:#}")),
        };
        let refusal = refusal.context("the pod started")?;
        ensure!(refusal.contains(&format!("pod shop/web-0 runs in a sandbox {}", described())), "{refusal}");
        assert_eq!(api.list("events"), [] as [Value; 0]);
        node.run(plain)?.remove()
    })
}
