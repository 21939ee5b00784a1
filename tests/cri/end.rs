//! Tests that a pod can always be stopped. If a DEL failed, the pod's address would remain allocated.

use anyhow::{Result, bail};

use crate::stage::Case;
use test_support::runtime::conflist::Families;
use test_support::runtime::engine::Engine;
use test_support::runtime::mesh::Mesh;
use test_support::runtime::node::Node;
use test_support::runtime::outside;
use test_support::runtime::pod::{APP_PORT, Pod};
use test_support::runtime::sandbox::Sandbox;

/// The API server's limit on the total size of an object's annotations, in bytes.
const ANNOTATIONS: usize = 256 << 10;

pub(crate) const CASES: &[Case] = &[
    ("stops_and_removes_a_pod_twice", repeatedly),
    ("stops_a_pod_that_is_older_than_the_chain_entry", older_than_the_plugin),
    ("stops_a_pod_without_agent_and_api_server", no_source),
    ("starts_and_stops_a_pod_with_the_largest_annotations", large_annotations),
    ("a_pod_survives_a_restart_of_the_runtime_and_stops_after_it", restart),
    ("only_pods_without_redirection_lose_their_sandbox_at_a_restart_of_the_runtime", restart_with_check),
];

fn repeatedly(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let pod = Pod::injected("shop", "web-0");
    mesh.cluster().apply(&pod);
    let sandbox = node.run(&pod)?;
    let id = sandbox.id().to_owned();
    sandbox.stop()?;
    // From here on the runtime calls DEL without netns and without prevResult.
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

fn no_source(node: &Node) -> Result<()> {
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

/// The largest annotations must prevent neither start nor stop, although runtimes escape each `<` in them to six characters.
fn large_annotations(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let pod = Pod::injected("shop", "web-0").annotated("example.com/note", &"<".repeat(ANNOTATIONS));
    mesh.cluster().apply(&pod);
    let sandbox = node.run(&pod)?;
    let rules = sandbox.netns()?.all_rules()?;
    assert!(rules.contains("ISTIO_REDIRECT"), "the pod is not redirected: {rules:?}");
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
    node.restart_runtime()?;
    let here = (sandbox.ip()?, APP_PORT).into();
    assert_eq!(outside::connect(node.netns(), here)?.hops(), [("istio-proxy/inbound", here), ("app", here)]);
    sandbox.remove()
}

/// CRI-O calls CHECK for each sandbox when it restarts. A sandbox whose CHECK fails loses its address, and the kubelet replaces it. Only
/// the pod with flushed rules may lose its address, and no pod with containerd, which calls no CHECK.
fn restart_with_check(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let names = ["sound", "edited", "foreign", "flushed"];
    let pods = names.map(|name| Pod::injected("shop", name));
    pods.iter().for_each(|pod| mesh.cluster().apply(pod));
    let sandboxes = pods.iter().map(|pod| node.run(pod)).collect::<Result<Vec<_>>>()?;
    let [_, edited, foreign, flushed] = &sandboxes[..] else { bail!("{} sandboxes", sandboxes.len()) };
    // The pod's annotations change; its UID stays the same.
    mesh.cluster().apply(&edited.pod().clone().annotated("traffic.sidecar.istio.io/includeInboundPorts", "80"));
    foreign.netns()?.command("iptables", &["-t", "nat", "-I", "OUTPUT", "1", "-d", "10.1.2.3", "-j", "RETURN"])?;
    flushed.netns()?.command("iptables", &["-t", "nat", "-F"])?;
    let addresses = || sandboxes.iter().map(|sandbox| Ok(!sandbox.ips()?.is_empty())).collect::<Result<Vec<_>>>();
    assert_eq!(addresses()?, [true; 4]);
    node.restart_runtime()?;
    let is_checked = *node.engine() != Engine::Containerd;
    assert_eq!(addresses()?, [true, true, true, !is_checked], "{names:?}");
    // Without agent and API server, CHECK cannot look up any pod, and must succeed.
    let run_dir = mesh.run_dir().to_owned();
    drop(mesh);
    std::fs::remove_dir_all(run_dir)?;
    node.restart_runtime()?;
    assert_eq!(addresses()?, [true; 4], "{names:?}");
    sandboxes.into_iter().try_for_each(Sandbox::remove)
}
