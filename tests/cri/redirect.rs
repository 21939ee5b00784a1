//! An injected pod's traffic goes through its sidecar, both ways, and the sidecar learns who was meant.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context as _, Result};
use istio_cni::contract::{annotation, proxy_env};
use serde_json::Value;

use crate::stage::{Case, Missing};
use test_support::runtime::conflist::Families;
use test_support::runtime::mesh::Mesh;
use test_support::runtime::node::Node;
use test_support::runtime::outside::{self, Outside};
use test_support::runtime::pod::{APP_PORT, Pod};
use test_support::runtime::programs::on_path;
use test_support::runtime::sandbox::Sandbox;

pub(crate) const CASES: &[Case] = &[
    ("redirects_both_ways_in_ipv4", redirects_ipv4),
    ("redirects_both_ways_in_both_families_of_a_dual_stack_pod", redirects_both_families),
    ("redirects_both_ways_in_tproxy_mode", redirects_tproxy),
    ("redirects_both_ways_with_native_nftables", redirects_nftables),
    ("redirects_both_ways_with_iptables_legacy", redirects_legacy),
    ("redirects_eight_pods_at_once", eight_at_once),
    ("a_request_between_two_pods_passes_both_sidecars", between_two_pods),
    ("leaves_excluded_ports_alone", leaves_excluded_ports_alone),
];

const OUTSIDE: [&str; 2] = ["198.51.100.10:7070", "[2001:db8::10]:7070"];
const INBOUND: &str = "istio-proxy/inbound";
const OUTBOUND: &str = "istio-proxy/outbound";

fn redirects_ipv4(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?.with_api_server(node)?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let pod = Pod::injected("shop", "web-0");
    mesh.cluster().apply(&pod);
    let mut sandbox = node.run(&pod)?;
    let asked = mesh.cluster().take_asked();
    assert_eq!(asked.len(), 1, "the plugin asks once: {asked:?}");
    assert!(asked[0].starts_with("agent: GET /pod?"), "the plugin asks the agent: {asked:?}");
    sandbox.start_containers()?;
    let ips = sandbox.ips()?;
    assert_eq!(ips.len(), 1, "{ips:?}");
    assert_redirected(node, &sandbox, ips[0])?;
    sandbox.remove()
}

fn redirects_both_families(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?;
    node.load_chain(Families::Dual, Some(&mesh.plugin()))?;
    let pod = Pod::injected("shop", "web-0").with_proxy_env(proxy_env::DUAL_STACK, "true");
    let mut sandbox = started(node, &mesh, &pod)?;
    sandbox.start_containers()?;
    let ips = sandbox.ips()?;
    assert_eq!(ips.iter().map(IpAddr::is_ipv4).collect::<Vec<_>>(), [true, false], "{ips:?}");
    for ip in ips {
        assert_redirected(node, &sandbox, ip)?;
    }
    sandbox.remove()
}

fn redirects_tproxy(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let mut sandbox = started(node, &mesh, &Pod::injected_for_tproxy("shop", "web-0"))?;
    sandbox.start_containers()?;
    let rules = sandbox.netns()?.command("iptables-save", &["-t", "mangle"])?;
    assert!(rules.contains("-j TPROXY"), "{rules}");
    assert_redirected(node, &sandbox, sandbox.ip()?)?;
    sandbox.remove()
}

fn redirects_nftables(node: &Node) -> Result<()> {
    let rules = redirected_by(node, "native_nftables", &true.into())?;
    assert!(rules.contains("table inet istio-proxy-nat"), "{rules}");
    Ok(())
}

fn redirects_legacy(node: &Node) -> Result<()> {
    for tool in ["iptables-legacy-restore", "ip6tables-legacy-restore"] {
        on_path(tool).map_err(Missing)?;
    }
    let rules = redirected_by(node, "force_iptables_binary", &"legacy".into())?;
    assert!(rules.starts_with("nat\n") || rules.contains("\nnat\n"), "no legacy table nat: {rules}");
    Ok(())
}

/// With a further key in the plugin's configuration; returns what netfilter then has in the pod.
fn redirected_by(node: &Node, key: &str, value: &Value) -> Result<String> {
    let mesh = Mesh::new(node)?.with_agent()?;
    let mut plugin = mesh.plugin();
    plugin[key] = value.clone();
    node.load_chain(Families::V4, Some(&plugin))?;
    let mut sandbox = started(node, &mesh, &Pod::injected("shop", "web-0"))?;
    sandbox.start_containers()?;
    let rules = sandbox.netns()?.all_rules()?;
    assert_redirected(node, &sandbox, sandbox.ip()?).with_context(|| format!("the rules: {rules}"))?;
    sandbox.remove()?;
    Ok(rules)
}

fn eight_at_once(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let life = |name: String| {
        let mut sandbox = started(node, &mesh, &Pod::injected("shop", &name))?;
        sandbox.start_containers()?;
        let here = (sandbox.ip()?, APP_PORT).into();
        let trace = outside::ask(node.netns(), here)?;
        assert_eq!(trace.hops(), [(INBOUND, here), ("app", here)], "{name}: {trace}");
        sandbox.remove()
    };
    std::thread::scope(|scope| {
        let lives: Vec<_> = (0..8).map(|n| scope.spawn(move || life(format!("web-{n}")))).collect();
        lives.into_iter().try_for_each(|life| life.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn between_two_pods(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let [mut web, mut cart] = [
        started(node, &mesh, &Pod::injected("shop", "web-0"))?,
        started(node, &mesh, &Pod::injected("shop", "cart-0"))?,
    ];
    web.start_containers()?;
    cart.start_containers()?;
    let there = SocketAddr::new(cart.ip()?, APP_PORT);
    let trace = web.ask("app", there)?;
    assert_eq!(trace.hops(), [(OUTBOUND, there), (INBOUND, there), ("app", there)], "{trace}");
    assert_eq!(trace.0[1].from.ip(), web.ip()?, "the other sidecar sees the pod that asks: {trace:?}");
    web.remove()?;
    cart.remove()
}

fn leaves_excluded_ports_alone(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let outside = Outside::start(node.netns(), OUTSIDE[0].parse()?)?;
    let pod = Pod::injected("shop", "web-0")
        .annotated(annotation::EXCLUDE_INBOUND_PORTS, &APP_PORT.to_string())
        .annotated(annotation::EXCLUDE_OUTBOUND_PORTS, &outside.address().port().to_string());
    let mut sandbox = started(node, &mesh, &pod)?;
    sandbox.start_containers()?;
    let here = SocketAddr::new(sandbox.ip()?, APP_PORT);
    assert_eq!(sandbox.ask("app", outside.address())?.hops(), [("server", outside.address())]);
    assert_eq!(outside::ask(node.netns(), here)?.hops(), [("app", here)]);
    sandbox.remove()
}

/// Everyone who may ask, does, and each takes the way that Istio documents.
fn assert_redirected(node: &Node, sandbox: &Sandbox<'_>, ip: IpAddr) -> Result<()> {
    let (family, localhost) =
        if ip.is_ipv4() { (0, IpAddr::V4(Ipv4Addr::LOCALHOST)) } else { (1, IpAddr::V6(Ipv6Addr::LOCALHOST)) };
    let server = Outside::start(node.netns(), OUTSIDE[family].parse()?)?;
    let there = server.address();
    let [here, ready, local] = [(ip, APP_PORT), (ip, 15021), (localhost, APP_PORT)].map(SocketAddr::from);

    let out = sandbox.ask("app", there)?;
    assert_eq!(out.hops(), [(OUTBOUND, there), ("server", there)], "the application's way out: {out}");
    assert_eq!(out.0[1].from.ip(), ip, "the server sees the pod: {out:?}");

    let inward = outside::ask(node.netns(), here)?;
    assert_eq!(inward.hops(), [(INBOUND, here), ("app", here)], "the way in: {inward}");

    let own = sandbox.ask("istio-proxy", there)?;
    assert_eq!(own.hops(), [("server", there)], "the sidecar's own traffic is left alone: {own}");
    let looped = sandbox.ask("istio-proxy", here)?;
    assert_eq!(looped.hops(), [(INBOUND, here), ("app", here)], "a pod that calls itself: {looped}");
    let loopback = sandbox.ask("app", local)?;
    assert_eq!(loopback.hops(), [("app", local)], "loopback is left alone: {loopback}");
    let probed = outside::ask(node.netns(), ready)?;
    assert_eq!(probed.hops(), [("istio-proxy/ready", ready)], "the readiness port is left alone: {probed}");
    Ok(())
}

fn started<'n>(node: &'n Node, mesh: &Mesh, pod: &Pod) -> Result<Sandbox<'n>> {
    mesh.cluster().apply(pod);
    node.run(pod)
}
