//! Whom the plugin asks of a pod, and in which order.

use anyhow::Result;
use istio_cni::contract::annotation;

use crate::stage::Case;
use test_support::runtime::conflist::Families;
use test_support::runtime::mesh::Mesh;
use test_support::runtime::node::Node;
use test_support::runtime::outside;
use test_support::runtime::pod::{APP_PORT, Pod};

pub(crate) const CASES: &[Case] = &[
    ("asks_the_api_server_where_there_is_no_agent", no_agent),
    ("asks_the_api_server_where_the_agent_knows_only_the_predecessor", agent_behind),
    ("asks_of_a_plain_pod_where_the_runtime_hands_over_no_annotations", no_capability),
];

fn no_agent(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_api_server(node)?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let pod = Pod::injected("shop", "web-0");
    mesh.cluster().apply(&pod);
    let mut sandbox = node.run(&pod)?;
    assert_eq!(mesh.cluster().take_asked(), ["API server: GET /api/v1/namespaces/shop/pods/web-0"]);
    sandbox.start_containers()?;
    let here = (sandbox.ip()?, APP_PORT).into();
    let trace = outside::ask(node.netns(), here)?;
    assert_eq!(trace.hops(), [("istio-proxy/inbound", here), ("app", here)]);
    sandbox.remove()
}

/// A StatefulSet's pod has its predecessor's name.
fn agent_behind(node: &Node) -> Result<()> {
    let predecessor = Pod::injected("shop", "web-0").annotated(annotation::INTERCEPTION_MODE, "NONE");
    let mesh = Mesh::new(node)?.with_agent_that_knows(&predecessor)?.with_api_server(node)?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let pod = Pod::injected("shop", "web-0");
    mesh.cluster().apply(&pod);
    let sandbox = node.run(&pod)?;
    let rules = sandbox.netns()?.all_rules()?;
    assert!(rules.contains("ISTIO_REDIRECT"), "the predecessor's annotations have been followed: {rules:?}");
    sandbox.remove()
}

fn no_capability(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?;
    node.load_chain(Families::V4, Some(&mesh.plugin_without_capability()))?;
    let plain = Pod::injected("shop", "plain-0").without_annotation(annotation::STATUS);
    mesh.cluster().apply(&plain);
    let sandbox = node.run(&plain)?;
    assert_eq!(mesh.cluster().take_asked().len(), 1);
    assert_eq!(sandbox.netns()?.all_rules()?, "");
    sandbox.remove()
}
