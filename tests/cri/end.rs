//! A pod can always be ended: a DEL that fails would leak its address for good.

use anyhow::Result;

use crate::stage::Case;
use test_support::runtime::conflist::Families;
use test_support::runtime::mesh::Mesh;
use test_support::runtime::node::Node;
use test_support::runtime::outside;
use test_support::runtime::pod::{APP_PORT, Pod};

/// So many bytes the API server allows for all annotations of an object together.
const ANNOTATIONS: usize = 256 << 10;

pub(crate) const CASES: &[Case] = &[
    ("ends_a_pod_that_is_stopped_twice_and_removed_twice", repeatedly),
    ("ends_a_pod_that_is_older_than_its_entry_in_the_chain", older_than_the_plugin),
    ("ends_a_pod_while_nobody_can_be_asked", nobody_to_ask),
    ("starts_and_ends_a_pod_whose_annotations_are_as_large_as_can_be", large_annotations),
    ("a_pod_outlives_a_restart_of_containerd_and_ends_after_it", restart),
];

fn repeatedly(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let pod = Pod::injected("shop", "web-0");
    mesh.cluster().apply(&pod);
    let sandbox = node.run(&pod)?;
    let id = sandbox.id().to_owned();
    sandbox.stop()?;
    // From here on containerd calls DEL without netns and without prevResult.
    sandbox.stop()?;
    sandbox.remove()?;
    node.cri().remove_sandbox(&id)
}

fn older_than_the_plugin(node: &Node) -> Result<()> {
    node.load_chain(Families::V4, None)?;
    let sandbox = node.run(&Pod::injected("shop", "web-0"))?;
    let mesh = Mesh::new(node)?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    sandbox.remove()
}

fn nobody_to_ask(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let pod = Pod::injected("shop", "web-0");
    mesh.cluster().apply(&pod);
    let sandbox = node.run(&pod)?;
    let run_dir = mesh.run_dir().to_owned();
    drop(mesh);
    std::fs::remove_dir_all(run_dir)?;
    sandbox.remove()
}

/// containerd hands them over with each `<` as six characters.
fn large_annotations(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let pod = Pod::injected("shop", "web-0").annotated("example.com/note", &"<".repeat(ANNOTATIONS));
    mesh.cluster().apply(&pod);
    let sandbox = node.run(&pod)?;
    let rules = sandbox.netns()?.all_rules()?;
    assert!(rules.contains("ISTIO_REDIRECT"), "it is not redirected: {rules:?}");
    let id = sandbox.id().to_owned();
    sandbox.stop()?;
    sandbox.stop()?;
    sandbox.remove()?;
    node.cri().remove_sandbox(&id)
}

fn restart(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let pod = Pod::injected("shop", "web-0");
    mesh.cluster().apply(&pod);
    let mut sandbox = node.run(&pod)?;
    sandbox.start_containers()?;
    node.restart_containerd()?;
    let here = (sandbox.ip()?, APP_PORT).into();
    assert_eq!(outside::ask(node.netns(), here)?.hops(), [("istio-proxy/inbound", here), ("app", here)]);
    sandbox.remove()
}
