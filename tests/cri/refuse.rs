//! What the plugin cannot answer for does not run: the sandbox fails, says why, and leaves nothing behind.

use std::time::Duration;

use anyhow::{Context as _, Result};
use istio_cni::contract::annotation;

use crate::stage::Case;
use test_support::runtime::conflist::AGENT_NAMESPACE;
use test_support::runtime::conflist::Families;
use test_support::runtime::mesh::Mesh;
use test_support::runtime::node::Node;
use test_support::runtime::pod::Pod;
use test_support::runtime::wait::timed;

pub(crate) const CASES: &[Case] = &[
    ("refuses_malformed_annotation_and_takes_the_pod_once_it_is_fixed", malformed_annotation),
    ("refuses_pod_while_nobody_can_be_asked", nobody_to_ask),
    ("refuses_pod_during_an_outage_within_the_time_limit", outage),
    ("refuses_pod_that_nobody_knows", unknown_pod),
    ("refuses_facts_of_another_pod_of_that_name", another_uid),
    ("runs_the_agents_own_pod_with_nobody_to_ask", agents_own_pod),
];

/// What the agent's DaemonSet names its pods.
const AGENT_POD: &str = "istio-cni-node-x2v9k";
/// A kubelet gives the runtime two minutes; the plugin must have given up long before.
const TIME_LIMIT: Duration = Duration::from_secs(40);

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

/// The name of the agent's pods is worth nothing in other namespaces.
fn nobody_to_ask(node: &Node) -> Result<()> {
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
    let asked = mesh.cluster().take_asked();
    assert!(asked.iter().any(|line| line.starts_with("agent:")), "{asked:?}");
    assert!(asked.iter().any(|line| line.starts_with("API server:")), "{asked:?}");
    Ok(())
}

/// A StatefulSet's pod has its predecessor's name: what is known of the predecessor is not about it.
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

/// What containerd says of a sandbox that must not come to be.
fn refusal(node: &Node, pod: &Pod) -> Result<String> {
    let refusal = node.run(pod).err().with_context(|| format!("{} runs, though it must not", pod.name))?;
    Ok(format!("{refusal:#}"))
}
