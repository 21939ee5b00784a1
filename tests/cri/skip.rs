//! Tests that pods without redirection run as if the plugin were not in the chain.

use anyhow::Result;
use contract::{annotation, container};

use crate::stage::Case;
use test_support::runtime::conflist::EXCLUDED_NAMESPACE;
use test_support::runtime::conflist::Families;
use test_support::runtime::mesh::Mesh;
use test_support::runtime::node::Node;
use test_support::runtime::outside::Outside;
use test_support::runtime::pod::Pod;

pub(crate) const CASES: &[Case] = &[
    ("skips_pod_without_sidecar_annotation_and_without_look_up", no_status),
    ("skips_excluded_namespace_without_look_up", excluded_namespace),
    ("skips_pod_with_injection_disabled_by_label", declined_by_label),
    ("skips_pod_with_injection_disabled_by_annotation", declined_by_annotation),
    ("skips_pod_with_istio_init", istio_init),
    ("skips_interception_mode_none", interception_none),
];

fn no_status(node: &Node) -> Result<()> {
    runs_without_rules(node, &Pod::injected("shop", "web-0").without_annotation(annotation::STATUS), 0)
}

fn excluded_namespace(node: &Node) -> Result<()> {
    runs_without_rules(node, &Pod::injected(EXCLUDED_NAMESPACE, "web-0"), 0)
}

fn declined_by_label(node: &Node) -> Result<()> {
    runs_without_rules(node, &Pod::injected("shop", "web-0").labelled(annotation::INJECT, "false"), 1)
}

fn declined_by_annotation(node: &Node) -> Result<()> {
    runs_without_rules(node, &Pod::injected("shop", "web-0").annotated(annotation::INJECT, "false"), 1)
}

fn istio_init(node: &Node) -> Result<()> {
    runs_without_rules(node, &Pod::injected("shop", "web-0").with_init_container(container::INIT), 1)
}

fn interception_none(node: &Node) -> Result<()> {
    runs_without_rules(node, &Pod::injected("shop", "web-0").annotated(annotation::INTERCEPTION_MODE, "NONE"), 1)
}

/// Checks that the pod runs, that its requests are not redirected, that its netns has no rules, and that the plugin looked it up `look_ups`
/// times in each call.
fn runs_without_rules(node: &Node, pod: &Pod, look_ups: usize) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?.with_api_server(node)?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    mesh.cluster().apply(pod);
    let mut sandbox = node.run(pod)?;
    let requests = mesh.cluster().take_requests();
    assert_eq!(requests.len(), look_ups * node.engine().calls_at_start(), "{requests:?}");
    assert_eq!(sandbox.netns()?.all_rules()?, "", "rules of a pod without redirection");
    sandbox.start_containers()?;
    let server = Outside::start(node.netns(), "198.51.100.10:7070".parse()?)?;
    assert_eq!(sandbox.connect("app", server.address())?.hops(), [("server", server.address())]);
    sandbox.remove()
}
