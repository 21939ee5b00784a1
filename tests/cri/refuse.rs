//! Tests that pods that cannot be redirected do not start: the sandbox fails with the reason and leaves nothing behind.

use std::time::Duration;

use anyhow::{Context as _, Result};
use contract::annotation;

use crate::stage::Case;
use test_support::runtime::conflist::AGENT_NAMESPACE;
use test_support::runtime::conflist::Families;
use test_support::runtime::mesh::Mesh;
use test_support::runtime::node::Node;
use test_support::runtime::pod::Pod;
use test_support::runtime::wait::timed;

pub(crate) const CASES: &[Case] = &[
    ("refuses_malformed_annotation_and_starts_the_pod_once_it_is_fixed", malformed_annotation),
    ("refuses_pod_without_agent_and_api_server", no_source),
    ("refuses_pod_during_an_outage_within_the_time_limit", outage),
    ("refuses_unknown_pod", unknown_pod),
    ("refuses_facts_of_another_pod_of_that_name", another_uid),
    ("runs_the_agents_own_pod_without_agent_and_api_server", agents_own_pod),
];

/// A pod name like those that the agent's DaemonSet generates.
const AGENT_POD: &str = "istio-cni-node-x2v9k";
/// The maximum duration of a failing ADD, which ends after 20 s on an idle machine. Kubelets allow the runtime two
/// minutes.
const TIME_LIMIT: Duration = Duration::from_secs(100);

fn malformed_annotation(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let good = Pod::injected("shop", "web-0");
    let bad = good.clone().annotated(annotation::INCLUDE_INBOUND_PORTS, "80,http");
    mesh.cluster().apply(&bad);
    let refusal = refusal(node, &bad)?;
    for part in ["istio-cni", "shop/web-0", annotation::INCLUDE_INBOUND_PORTS, "http", "65535"] {
        assert!(refusal.contains(part), "{part:?} is not in {refusal:?}");
    }
    assert_eq!(node.leftovers()?, [] as [String; 0]);

    mesh.cluster().apply(&good);
    node.run(&good)?.remove()
}

/// An ADD must fail if there is neither an agent nor a kubeconfig. The pod has a name like the agent's own pods, but is in another
/// namespace, so it is not exempt as they are.
fn no_source(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let refusal = refusal(node, &Pod::injected("shop", AGENT_POD))?;
    let (socket, kubeconfig) = (mesh.run_dir().join("agent.sock"), mesh.run_dir().join("istio-cni-kubeconfig"));
    for part in [format!("shop/{AGENT_POD}").as_ref(), socket.as_os_str(), kubeconfig.as_os_str()] {
        let part = part.to_string_lossy();
        assert!(refusal.contains(&*part), "{part:?} is not in {refusal:?}");
    }
    Ok(())
}

fn outage(node: &Node) -> Result<()> {
    let mut mesh = Mesh::new(node)?.with_api_server(node)?;
    mesh.end_api_server();
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let (refusal, took) = timed(|| refusal(node, &Pod::injected("shop", "web-0")));
    let refusal = refusal?;
    assert!(took < TIME_LIMIT, "{took:?}");
    assert!(refusal.contains("refused"), "the cause is not in {refusal:?}");
    Ok(())
}

fn unknown_pod(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?.with_api_server(node)?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let refusal = refusal(node, &Pod::injected("shop", "web-0"))?;
    assert!(refusal.contains("shop/web-0"), "{refusal:?}");
    let requests = mesh.cluster().take_requests();
    assert!(requests.iter().any(|line| line.starts_with("agent:")), "{requests:?}");
    assert!(requests.iter().any(|line| line.starts_with("API server:")), "{requests:?}");
    Ok(())
}

/// An ADD must fail if agent and API server have only a StatefulSet's previous pod, which has the same name and another UID.
fn another_uid(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?.with_api_server(node)?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let predecessor = Pod::injected("shop", "web-0");
    mesh.cluster().apply(&predecessor);
    let pod = Pod::injected("shop", "web-0");
    let refusal = refusal(node, &pod)?;
    for uid in [&predecessor.uid, &pod.uid] {
        assert!(refusal.contains(uid.as_str()), "{uid:?} is not in {refusal:?}");
    }
    Ok(())
}

fn agents_own_pod(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let sandbox = node.run(&Pod::injected(AGENT_NAMESPACE, AGENT_POD))?;
    assert_eq!(sandbox.netns()?.all_rules()?, "", "rules of the agent's own pod");
    sandbox.remove()
}

/// Tries to create the pod's sandbox, and returns the runtime's error.
fn refusal(node: &Node, pod: &Pod) -> Result<String> {
    let refusal = node.run(pod).err().with_context(|| format!("the sandbox of {} was created", pod.name))?;
    Ok(format!("{refusal:#}"))
}
