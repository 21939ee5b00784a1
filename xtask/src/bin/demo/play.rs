//! The steps of the demo and their checks.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use contract::annotation;
use serde_json::Value;

use crate::page::Page;
use test_support::runtime::conflist::Families;
use test_support::runtime::control_plane::ControlPlane;
use test_support::runtime::installer::{Installer, names_plugin};
use test_support::runtime::node::Node;
use test_support::runtime::outside::{self, Outside};
use test_support::runtime::pod::{APP_PORT, Pod, VALIDATION};
use test_support::runtime::sandbox::Sandbox;
use test_support::runtime::trace::Trace;
use test_support::runtime::wait::{self, timed};

const SERVER: &str = "198.51.100.10:7070";

/// Performs all steps. The pods are removed at the end.
pub(crate) fn play(page: &Page, node: &Node) -> Result<()> {
    let cluster = ControlPlane::start(node)?;
    node.load_chain(Families::V4, None)?;
    let original = fs::read(node.network())?;
    let early = start_too_early(page, node, &cluster)?;

    let (installer, took) = timed(|| install(node, &cluster));
    let installer = installer?;
    page.done("install-cni", &format!("plugin, kubeconfig and chain entry in place after {}", ms(took)));
    let start = |pod: &Pod, how| start(page, node, &cluster, installer.run_dir(), pod, how);
    let web = start(&Pod::injected("shop", "web-0"), "redirected")?;
    let cart = start(&Pod::injected("shop", "cart-0"), "redirected")?;
    let plain = start(
        &Pod::injected("shop", "plain-0").without_annotation(annotation::STATUS),
        "not injected, not redirected",
    )?;

    let server = Outside::start(node.netns(), SERVER.parse()?)?;
    let cast = Cast { node, server, web, cart, plain };
    page.heading("Requests, their paths, and the original destination");
    let rows = cast.requests()?.iter().map(Request::row).collect::<Result<Vec<_>>>()?;
    page.table(&rows);

    page.heading("What the containers of web-0 saw");
    page.table(&cast.seen_in_web()?);

    page.heading("The rules in web-0 (iptables-save -t nat); plain-0 has none");
    page.quote(cast.rules()?);

    page.heading("Another program overwrites the node's network configuration");
    restore(page, node, &original)?;

    page.heading("early-0 started before the plugin was installed");
    let early = repair(page, &cluster, early, cast.server.address())?;

    page.heading("The DaemonSet is deleted");
    uninstall(page, node, &cluster, installer, &original)?;
    cluster.end();
    early.remove()?;
    cast.end()
}

fn ms(took: Duration) -> String {
    format!("{:.1} ms", took.as_secs_f64() * 1e3)
}

/// Starts the daemon and waits until the runtime uses its chain entry.
fn install<'n>(node: &'n Node, cluster: &ControlPlane) -> Result<Installer<'n>> {
    let mut installer = Installer::start(
        node,
        cluster.address(),
        &["--repair-mode=repair", "--repair-proc=/proc", "--repair-netns-dirs=/run/netns"],
    )?;
    installer.ready()?;
    Ok(installer)
}

/// Starts a pod and its containers, and prints how long the plugin's ADD and the creation of the sandbox took.
fn start<'n>(
    page: &Page,
    node: &'n Node,
    cluster: &ControlPlane,
    run_dir: &Path,
    pod: &Pod,
    how: &str,
) -> Result<Sandbox<'n>> {
    cluster.schedule(pod);
    let (sandbox, took) = timed(|| node.run(pod));
    let mut sandbox = sandbox?;
    sandbox.start_containers()?;
    let (ip, add) = (sandbox.ip()?, last_add_took(run_dir)?.as_secs_f64() * 1e3);
    let name = format!("{}/{}", pod.namespace, pod.name);
    page.done(&name, &format!("{ip}  ADD {add:>5.1} ms  sandbox {:>8}  {how}", ms(took)));
    Ok(sandbox)
}

/// Starts an injected pod before the plugin is in the chain, so that it is not redirected and its validation must fail.
fn start_too_early<'n>(page: &Page, node: &'n Node, cluster: &ControlPlane) -> Result<Sandbox<'n>> {
    let pod = Pod::injected("shop", "early-0");
    let sandbox = node.run(&pod)?;
    let code = sandbox.run_to_end(&VALIDATION, 0)?;
    ensure!(code == i32::from(contract::EXIT_VALIDATION), "istio-validation of early-0 ended with {code}");
    cluster.report_unvalidated(&pod, sandbox.ip()?);
    page.done("shop/early-0", &format!("{}  no plugin yet: istio-validation ends with {code}", sandbox.ip()?));
    Ok(sandbox)
}

/// Returns the duration of the last ADD in the plugin's log.
fn last_add_took(run_dir: &Path) -> Result<Duration> {
    let path = run_dir.join(contract::LOG_FILE);
    let log = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut adds = lines.filter(|line| line["cmd"] == "ADD").filter_map(|line| line["elapsed_us"].as_u64());
    Ok(Duration::from_micros(adds.next_back().with_context(|| format!("no ADD with elapsed_us in\n{log}"))?))
}

/// Replaces the network configuration with one that lacks the plugin, and waits until the daemon has restored the chain entry.
fn restore(page: &Page, node: &Node, without: &[u8]) -> Result<()> {
    let new = node.networks().join("new");
    fs::write(&new, without)?;
    fs::rename(&new, node.network())?;
    let (back, took) = timed(|| {
        wait::until("the chain entry is restored", || {
            let text = fs::read_to_string(node.network())?;
            ensure!(names_plugin(&text), "{text}");
            Ok(())
        })
    });
    back?;
    page.done("restored", &format!("the chain entry was restored after {}", ms(took)));
    Ok(())
}

/// Waits for the repair of a pod in place and checks its redirection.
fn repair<'n>(page: &Page, cluster: &ControlPlane, mut early: Sandbox<'n>, server: SocketAddr) -> Result<Sandbox<'n>> {
    let message = cluster.event(early.pod(), "RepairBrokenPod")?;
    page.done("RepairBrokenPod", &message);
    let code = early.run_to_end(&VALIDATION, 1)?;
    ensure!(code == 0, "istio-validation of early-0 still ends with {code}");
    page.done("istio-validation", "passes in the same sandbox");
    early.start_containers()?;
    let ip: IpAddr = early.ip()?;
    let path = early.connect("app", server)?;
    let request = Request {
        from: "app in early-0",
        to: "a server",
        path,
        expected: vec![("istio-proxy/outbound", server), ("server", server)],
    };
    page.table(&[request.row().with_context(|| ip.to_string())?]);
    Ok(early)
}

/// Deletes the DaemonSet and checks that all changes of the node are reverted.
fn uninstall(
    page: &Page,
    node: &Node,
    cluster: &ControlPlane,
    installer: Installer<'_>,
    original: &[u8],
) -> Result<()> {
    cluster.delete_daemon_set();
    let run_dir = installer.run_dir().to_owned();
    let (ended, took) = timed(|| installer.end());
    ended?;
    ensure!(fs::read(node.network())? == original, "the network configuration is not restored");
    for gone in [node.plugins().join(contract::PLUGIN_NAME), run_dir.join(contract::KUBECONFIG)] {
        ensure!(!gone.exists(), "{} still exists", gone.display());
    }
    page.done(
        "removed",
        &format!("plugin, kubeconfig and entry were removed after {}; the file has its original bytes", ms(took)),
    );
    page.gap();
    Ok(())
}

/// The pods and the server between which the demo sends requests.
struct Cast<'n> {
    node: &'n Node,
    server: Outside,
    web: Sandbox<'n>,
    cart: Sandbox<'n>,
    plain: Sandbox<'n>,
}

/// A request that was sent, with the path that it took and the expected path.
struct Request {
    from: &'static str,
    to: &'static str,
    path: Trace,
    expected: Vec<(&'static str, SocketAddr)>,
}

impl Request {
    fn row(&self) -> Result<[String; 4]> {
        let Self { from, to, path, expected } = self;
        ensure!(path.hops() == *expected, "{from} to {to}: expected {expected:?}, but the path was {path}");
        // All hops of these paths have the same original destination.
        let destination = expected.first().map(|(_, address)| format!("({address})")).unwrap_or_default();
        let hops: Vec<&str> = expected.iter().map(|(program, _)| *program).collect();
        Ok([(*from).to_owned(), format!("to {to}"), format!("→ {}", hops.join(" → ")), destination])
    }
}

impl Cast<'_> {
    fn requests(&self) -> Result<Vec<Request>> {
        let there = self.server.address();
        let web = SocketAddr::new(self.web.ip()?, APP_PORT);
        let cart = SocketAddr::new(self.cart.ip()?, APP_PORT);
        let plain = SocketAddr::new(self.plain.ip()?, APP_PORT);
        let (inbound, outbound) = ("istio-proxy/inbound", "istio-proxy/outbound");
        let node = self.node.netns();
        Ok(vec![
            Request {
                from: "the node",
                to: "web-0",
                path: outside::connect(node, web)?,
                expected: vec![(inbound, web), ("app", web)],
            },
            Request {
                from: "app in web-0",
                to: "a server",
                path: self.web.connect("app", there)?,
                expected: vec![(outbound, there), ("server", there)],
            },
            Request {
                from: "app in web-0",
                to: "cart-0",
                path: self.web.connect("app", cart)?,
                expected: vec![(outbound, cart), (inbound, cart), ("app", cart)],
            },
            Request {
                from: "istio-proxy in web-0",
                to: "a server",
                path: self.web.connect("istio-proxy", there)?,
                expected: vec![("server", there)],
            },
            Request {
                from: "the node",
                to: "plain-0",
                path: outside::connect(node, plain)?,
                expected: vec![("app", plain)],
            },
            Request {
                from: "app in plain-0",
                to: "a server",
                path: self.plain.connect("app", there)?,
                expected: vec![("server", there)],
            },
        ])
    }

    /// Returns the lines `WHO from ADDRESS to ADDRESS` in the logs of the containers of the pod `web`.
    fn seen_in_web(&self) -> Result<Vec<[String; 2]>> {
        let mut rows = Vec::new();
        for container in &self.web.pod().containers {
            for line in self.web.log(container)?.iter().filter(|line| line.contains(" from ")) {
                let (program, ends) = line.split_once(" from ").context("a line of a container's log")?;
                rows.push([program.to_owned(), ends.replace(" to ", " → ")]);
            }
        }
        ensure!(rows.len() == 4, "expected four lines about the requests of web-0: {rows:?}");
        Ok(rows)
    }

    fn rules(&self) -> Result<Vec<String>> {
        let none = self.plain.netns()?.all_rules()?;
        ensure!(none.is_empty(), "plain-0 has rules:\n{none}");
        let rules = self.web.netns()?.command("iptables-save", &["-t", "nat"])?;
        let rules: Vec<String> = rules.lines().filter(|line| line.starts_with("-A")).map(str::to_owned).collect();
        ensure!(rules.iter().any(|rule| rule.contains("ISTIO_REDIRECT")), "web-0 has no Istio chains: {rules:?}");
        Ok(rules)
    }

    fn end(self) -> Result<()> {
        for sandbox in [self.web, self.cart, self.plain] {
            sandbox.remove()?;
        }
        let left = self.node.leftovers()?;
        ensure!(left.is_empty(), "leftovers of pods: {left:?}");
        Ok(())
    }
}
