//! Tests from which sources the plugin looks a pod up, and in which order.

use anyhow::Result;
use contract::annotation;

use crate::stage::Case;
use test_support::runtime::conflist::Families;
use test_support::runtime::mesh::Mesh;
use test_support::runtime::node::Node;
use test_support::runtime::outside;
use test_support::runtime::pod::{APP_PORT, Pod};

pub(crate) const CASES: &[Case] = &[
    ("queries_the_api_server_without_an_agent", no_agent),
    ("queries_the_api_server_if_the_agent_has_only_the_predecessor", agent_behind),
    ("looks_up_a_plain_pod_if_the_runtime_passes_no_annotations", no_capability),
];

fn no_agent(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_api_server(node)?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let pod = Pod::injected("shop", "web-0");
    mesh.cluster().apply(&pod);
    let mut sandbox = node.run(&pod)?;
    let expected = vec!["API server: GET /api/v1/namespaces/shop/pods/web-0"; node.engine().calls_at_start()];
    assert_eq!(mesh.cluster().take_requests(), expected);
    sandbox.start_containers()?;
    let here = (sandbox.ip()?, APP_PORT).into();
    let trace = outside::connect(node.netns(), here)?;
    assert_eq!(trace.hops(), [("istio-proxy/inbound", here), ("app", here)]);
    sandbox.remove()
}

/// The agent's cache still contains a StatefulSet's previous pod, which has the same name. The plugin must therefore use the pod from the
/// API server.
fn agent_behind(node: &Node) -> Result<()> {
    let predecessor = Pod::injected("shop", "web-0").annotated(annotation::INTERCEPTION_MODE, "NONE");
    let mesh = Mesh::new(node)?.with_outdated_agent(&predecessor)?.with_api_server(node)?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let pod = Pod::injected("shop", "web-0");
    mesh.cluster().apply(&pod);
    let sandbox = node.run(&pod)?;
    let rules = sandbox.netns()?.all_rules()?;
    assert!(rules.contains("ISTIO_REDIRECT"), "the rules follow the predecessor's annotations: {rules:?}");
    sandbox.remove()
}

fn no_capability(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?;
    node.load_chain(Families::V4, Some(&mesh.plugin_without_capability()))?;
    let plain = Pod::injected("shop", "plain-0").without_annotation(annotation::STATUS);
    mesh.cluster().apply(&plain);
    let sandbox = node.run(&plain)?;
    assert_eq!(mesh.cluster().take_requests().len(), node.engine().calls_at_start());
    assert_eq!(sandbox.netns()?.all_rules()?, "");
    sandbox.remove()
}
