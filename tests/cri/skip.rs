//! Pods that redirection does not concern run as if there were no plugin.

use anyhow::Result;
use istio_cni::contract::{annotation, container};

use crate::stage::Case;
use test_support::runtime::conflist::EXCLUDED_NAMESPACE;
use test_support::runtime::conflist::Families;
use test_support::runtime::mesh::Mesh;
use test_support::runtime::node::Node;
use test_support::runtime::outside::Outside;
use test_support::runtime::pod::Pod;

pub(crate) const CASES: &[Case] = &[
    ("skips_pod_without_sidecar_annotation_and_asks_nobody", no_status),
    ("skips_excluded_namespace_and_asks_nobody", excluded_namespace),
    ("skips_pod_whose_label_declines", declined_by_label),
    ("skips_pod_whose_annotation_declines", declined_by_annotation),
    ("skips_pod_with_istio_init", istio_init),
    ("skips_interception_mode_none", interception_none),
];

fn no_status(node: &Node) -> Result<()> {
    left_alone(node, &Pod::injected("shop", "web-0").without_annotation(annotation::STATUS), 0)
}

fn excluded_namespace(node: &Node) -> Result<()> {
    left_alone(node, &Pod::injected(EXCLUDED_NAMESPACE, "web-0"), 0)
}

fn declined_by_label(node: &Node) -> Result<()> {
    left_alone(node, &Pod::injected("shop", "web-0").labelled(annotation::INJECT, "false"), 1)
}

fn declined_by_annotation(node: &Node) -> Result<()> {
    left_alone(node, &Pod::injected("shop", "web-0").annotated(annotation::INJECT, "false"), 1)
}

fn istio_init(node: &Node) -> Result<()> {
    left_alone(node, &Pod::injected("shop", "web-0").with_init_container(container::INIT), 1)
}

fn interception_none(node: &Node) -> Result<()> {
    left_alone(node, &Pod::injected("shop", "web-0").annotated(annotation::INTERCEPTION_MODE, "NONE"), 1)
}

/// The pod runs, reaches others by itself and has no rules; the plugin has asked so many times.
fn left_alone(node: &Node, pod: &Pod, questions: usize) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?.with_api_server(node)?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    mesh.cluster().apply(pod);
    let mut sandbox = node.run(pod)?;
    let asked = mesh.cluster().take_asked();
    assert_eq!(asked.len(), questions, "{asked:?}");
    assert_eq!(sandbox.netns()?.all_rules()?, "", "rules of a pod that is left alone");
    sandbox.start_containers()?;
    let server = Outside::start(node.netns(), "198.51.100.10:7070".parse()?)?;
    assert_eq!(sandbox.ask("app", server.address())?.hops(), [("server", server.address())]);
    sandbox.remove()
}
