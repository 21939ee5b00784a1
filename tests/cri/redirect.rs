//! Tests that the traffic of an injected pod passes its sidecar in both directions, with its original destination.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context as _, Result};
use contract::{annotation, proxy_env};
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
    ("excluded_ports_are_not_redirected", excluded_ports),
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
    let requests = mesh.cluster().take_requests();
    assert_eq!(requests.len(), node.engine().calls_at_start(), "one lookup for each call: {requests:?}");
    assert!(requests[0].starts_with("agent: GET /pod?"), "the lookup goes to the agent: {requests:?}");
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

/// Redirects a pod with an additional key in the plugin's configuration, and returns the rules of its netns.
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
    let run = |name: String| {
        let mut sandbox = started(node, &mesh, &Pod::injected("shop", &name))?;
        sandbox.start_containers()?;
        let here = (sandbox.ip()?, APP_PORT).into();
        let trace = outside::connect(node.netns(), here)?;
        assert_eq!(trace.hops(), [(INBOUND, here), ("app", here)], "{name}: {trace}");
        sandbox.remove()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|n| scope.spawn(move || run(format!("web-{n}")))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
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
    let trace = web.connect("app", there)?;
    assert_eq!(trace.hops(), [(OUTBOUND, there), (INBOUND, there), ("app", there)], "{trace}");
    assert_eq!(
        trace.0[1].from.ip(),
        web.ip()?,
        "the other sidecar has the address of the pod that sent the request: {trace:?}"
    );
    web.remove()?;
    cart.remove()
}

fn excluded_ports(node: &Node) -> Result<()> {
    let mesh = Mesh::new(node)?.with_agent()?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let outside = Outside::start(node.netns(), OUTSIDE[0].parse()?)?;
    let pod = Pod::injected("shop", "web-0")
        .annotated(annotation::EXCLUDE_INBOUND_PORTS, &APP_PORT.to_string())
        .annotated(annotation::EXCLUDE_OUTBOUND_PORTS, &outside.address().port().to_string());
    let mut sandbox = started(node, &mesh, &pod)?;
    sandbox.start_containers()?;
    let here = SocketAddr::new(sandbox.ip()?, APP_PORT);
    assert_eq!(sandbox.connect("app", outside.address())?.hops(), [("server", outside.address())]);
    assert_eq!(outside::connect(node.netns(), here)?.hops(), [("app", here)]);
    sandbox.remove()
}

/// Checks that requests from and to the application and the sidecar take the paths that Istio documents.
pub(crate) fn assert_redirected(node: &Node, sandbox: &Sandbox<'_>, ip: IpAddr) -> Result<()> {
    let (family, localhost) =
        if ip.is_ipv4() { (0, IpAddr::V4(Ipv4Addr::LOCALHOST)) } else { (1, IpAddr::V6(Ipv6Addr::LOCALHOST)) };
    let server = Outside::start(node.netns(), OUTSIDE[family].parse()?)?;
    let there = server.address();
    let [here, ready, local] = [(ip, APP_PORT), (ip, 15021), (localhost, APP_PORT)].map(SocketAddr::from);

    let out = sandbox.connect("app", there)?;
    assert_eq!(out.hops(), [(OUTBOUND, there), ("server", there)], "outbound from the application: {out}");
    assert_eq!(out.0[1].from.ip(), ip, "the server has the pod's address: {out:?}");

    let inward = outside::connect(node.netns(), here)?;
    assert_eq!(inward.hops(), [(INBOUND, here), ("app", here)], "inbound to the application: {inward}");

    let own = sandbox.connect("istio-proxy", there)?;
    assert_eq!(own.hops(), [("server", there)], "the sidecar's own traffic is not redirected: {own}");
    let looped = sandbox.connect("istio-proxy", here)?;
    assert_eq!(looped.hops(), [(INBOUND, here), ("app", here)], "the sidecar's request to its own pod: {looped}");
    let loopback = sandbox.connect("app", local)?;
    assert_eq!(loopback.hops(), [("app", local)], "loopback is not redirected: {loopback}");
    let probed = outside::connect(node.netns(), ready)?;
    assert_eq!(probed.hops(), [("istio-proxy/ready", ready)], "the readiness port is not redirected: {probed}");
    Ok(())
}

fn started<'n>(node: &'n Node, mesh: &Mesh, pod: &Pod) -> Result<Sandbox<'n>> {
    mesh.cluster().apply(pod);
    node.run(pod)
}
