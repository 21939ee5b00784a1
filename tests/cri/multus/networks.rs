//! Tests of the forms in which Multus names the pod network, and of additional networks.

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use contract::annotation;
use serde_json::{Value, json};

use super::stage::{NAMED, NETWORKS, Stage, adds};
use crate::stage::Case;
use test_support::runtime::conflist;
use test_support::runtime::node::Node;
use test_support::runtime::outside;
use test_support::runtime::pod::{APP_PORT, Pod};
use test_support::runtime::sandbox::Sandbox;

pub(super) const CASES: &[Case] = &[
    ("multus_runs_the_plugin_behind_its_copy_of_the_chain", behind_the_copy),
    ("multus_runs_the_plugin_in_its_copy_of_a_named_chain", in_the_copy),
    ("multus_runs_the_chain_that_its_cluster_network_names", cluster_network),
    ("a_single_configuration_of_multus_is_converted_and_put_back", converted),
    ("multus_adds_a_second_interface_that_is_redirected_as_annotations_say", second_interface),
    ("multus_runs_the_plugin_as_a_network_of_its_own", standalone),
];

fn behind_the_copy(node: &Node) -> Result<()> {
    let mut stage = Stage::new(node)?;
    stage.copy_chain(&[])?;
    let copy = fs::read_to_string(stage.multus.list())?;
    let mut agent = stage.install(&[])?;
    stage.chained_into(&mut agent, &stage.multus.list())?;
    let sandbox = stage.run_redirected(&agent, &Pod::injected("shop", "web-0"))?;
    stage.uninstall(agent)?;
    assert_eq!(fs::read_to_string(stage.multus.list())?, copy);
    sandbox.remove()?;
    stage.starts_without_the_plugin("web-1")
}

/// The copy of the chain is older than the installation. The agent must report this, and wait for the next copy.
fn in_the_copy(node: &Node) -> Result<()> {
    let mut stage = Stage::new(node)?;
    stage.copy_chain(&[])?;
    let mut agent = stage.install(&[NAMED])?;
    agent.reports("the agent names the copy", |response| {
        response.starts_with("HTTP/1.1 503")
            && response.contains("00-multus.conflist runs a copy of the network of ")
            && response.contains("restart Multus")
    })?;
    stage.multus.end()?;
    stage.copy_chain(&[])?;
    agent.installed()?;
    let sandbox = stage.run_redirected(&agent, &Pod::injected("shop", "web-0"))?;
    stage.uninstall(agent)?;
    stage.assert_copy_is_bare()?;
    sandbox.remove()?;
    stage.starts_without_the_plugin("web-1")
}

/// The network is given by name, not by path: Multus 4.2 calls DEL without `ipam.ranges` if `clusterNetwork` is the path of a list.
fn cluster_network(node: &Node) -> Result<()> {
    let mut stage = Stage::new(node)?;
    stage.configure_list(json!({ "clusterNetwork": conflist::NAME, "confDir": node.networks() }))?;
    let mut agent = stage.install(&[NAMED])?;
    agent.installed()?;
    let sandbox = stage.run_redirected(&agent, &Pod::injected("shop", "web-0"))?;
    stage.uninstall(agent)?;
    sandbox.remove()?;
    stage.starts_without_the_plugin("web-1")
}

fn converted(node: &Node) -> Result<()> {
    let mut stage = Stage::new(node)?;
    let conf = stage.conf("0.3.1", json!({ "clusterNetwork": conflist::NAME, "confDir": node.networks() }));
    stage.configure("00-multus.conf", &conf)?;
    let before = fs::read_to_string(stage.multus.single())?;
    let mut agent = stage.install(&[])?;
    stage.chained_into(&mut agent, &stage.multus.list())?;
    let sandbox = stage.run_redirected(&agent, &Pod::injected("shop", "web-0"))?;
    stage.uninstall(agent)?;
    assert_eq!((fs::read_to_string(stage.multus.single())?, stage.multus.list().exists()), (before, false));
    sandbox.remove()?;
    stage.starts_without_the_plugin("web-1")
}

fn second_interface(node: &Node) -> Result<()> {
    let mut stage = Stage::new(node)?;
    let (networks, leases) = (node.new_dir("networks")?, node.new_dir("leases")?);
    let ipam = json!({ "type": "host-local", "dataDir": leases, "ranges": [[{ "subnet": "10.223.0.0/24" }]] });
    let second = json!({ "cniVersion": "1.0.0", "name": "second", "type": "ptp", "ipam": ipam });
    fs::write(networks.join("second.conf"), second.to_string())?;
    let delegate: Value = serde_json::from_str(&stage.chain)?;
    stage.configure_list(json!({ "delegates": [delegate], "confDir": networks }))?;
    stage.define("shop", "second");
    let mut agent = stage.install(&[])?;
    stage.chained_into(&mut agent, &stage.multus.list())?;

    let on_both = Pod::injected("shop", "web-0").annotated(NETWORKS, "second");
    let on_first = Pod::injected("shop", "web-1")
        .annotated(NETWORKS, "second@lan")
        .annotated(annotation::EXCLUDE_INTERFACES, "lan");
    for (pod, interface, is_redirected) in [(on_both, "net1", true), (on_first, "lan", false)] {
        let sandbox = stage.run_redirected(&agent, &pod)?;
        let there = SocketAddr::new(address_of(&sandbox, interface)?, APP_PORT);
        let trace = outside::connect(node.netns(), there)?;
        let through_proxy = [("istio-proxy/inbound", there), ("app", there)];
        let expected = if is_redirected { &through_proxy[..] } else { &through_proxy[1..] };
        assert_eq!(trace.hops(), expected, "{interface} of {}: {trace}", pod.name);
        sandbox.remove()?;
    }
    let left: Vec<_> = fs::read_dir(leases.join("second"))?.flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("10.223.")), "addresses are left: {left:?}");
    stage.uninstall(agent)?;
    stage.starts_without_the_plugin("web-2")
}

/// As on OpenShift, the agent writes to a directory that only Multus reads. Only pods that name the plugin's network are redirected.
fn standalone(node: &Node) -> Result<()> {
    let mut stage = Stage::new(node)?;
    let networks = node.new_dir("networks")?;
    let delegate: Value = serde_json::from_str(&stage.chain)?;
    stage.configure_list(json!({ "delegates": [delegate], "confDir": networks }))?;
    let before = fs::read_to_string(stage.multus.list())?;
    stage.define("default", "istio-cni");
    let mut agent = stage.install_in(&networks, &["--chained-cni-plugin=false", "--cni-conf-name=istio-cni.conf"])?;
    agent.installed()?;

    let named = |name: &str| Pod::injected("shop", name).annotated(NETWORKS, "default/istio-cni");
    let sandbox = stage.run_redirected(&agent, &named("web-0"))?;
    let ended = stage.run_redirected(&agent, &named("web-1"))?;
    ended.remove()?;
    let unnamed = Pod::injected("shop", "web-2");
    let without = stage.run(&unnamed)?;
    assert_eq!((without.netns()?.all_rules()?, adds(&agent, &unnamed)?), (String::new(), 0));
    without.remove()?;

    stage.uninstall(agent)?;
    ensure!(fs::read_dir(&networks)?.next().is_none(), "files are left in {}", networks.display());
    assert_eq!(fs::read_to_string(stage.multus.list())?, before);
    sandbox.remove()?;
    stage.starts_without_the_plugin("web-3")
}

/// Returns the IPv4 address of an interface in a pod.
fn address_of(sandbox: &Sandbox<'_>, interface: &str) -> Result<std::net::IpAddr> {
    let text = sandbox.netns()?.command("ip", &["-json", "-4", "address", "show", "dev", interface])?;
    let links: Value = serde_json::from_str(&text)?;
    Ok(links[0]["addr_info"][0]["local"].as_str().with_context(|| text.clone())?.parse()?)
}
