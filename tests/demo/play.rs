//! What the demo does, and what must come of it.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use istio_cni::contract::annotation;

use crate::page::Page;
use crate::runtime::conflist::Families;
use crate::runtime::mesh::Mesh;
use crate::runtime::node::Node;
use crate::runtime::outside::{self, Outside};
use crate::runtime::pod::{APP_PORT, Pod};
use crate::runtime::sandbox::Sandbox;
use crate::runtime::trace::Trace;
use crate::runtime::wait::timed;

const SERVER: &str = "198.51.100.10:7070";

/// All of it; the pods are gone at its end.
pub(crate) fn play(page: &Page, node: &Node) -> Result<()> {
    let mut mesh = Mesh::new(node)?.with_api_server(node)?;
    node.load_chain(Families::V4, Some(&mesh.plugin()))?;
    let web = start(page, node, &mesh, &Pod::injected("shop", "web-0"), "asked the API server")?;
    mesh = mesh.with_agent()?;
    let cart = start(page, node, &mesh, &Pod::injected("shop", "cart-0"), "asked the node's agent")?;
    let plain = Pod::injected("shop", "plain-0").without_annotation(annotation::STATUS);
    let plain = start(page, node, &mesh, &plain, "not injected: asked nobody")?;

    let server = Outside::start(node.netns(), SERVER.parse()?)?;
    let cast = Cast { node, server, web, cart, plain };
    page.heading("Who asked → who answered (original destination)");
    let rows = cast.requests()?.iter().map(Request::row).collect::<Result<Vec<_>>>()?;
    page.table(&rows);

    page.heading("What the containers of web-0 saw");
    page.table(&cast.seen_in_web()?);

    page.heading("The rules in web-0 (iptables-save -t nat); plain-0 has none");
    page.quote(cast.rules()?);
    page.gap();
    cast.end()
}

/// Runs a pod, its containers included, and tells how long that took and whom the plugin has asked.
fn start<'n>(page: &Page, node: &'n Node, mesh: &Mesh, pod: &Pod, how: &str) -> Result<Sandbox<'n>> {
    mesh.cluster().apply(pod);
    let (sandbox, took) = timed(|| node.run(pod));
    let mut sandbox = sandbox?;
    let asked = mesh.cluster().take_asked();
    let expected = usize::from(pod.annotations.contains_key(annotation::STATUS));
    ensure!(asked.len() == expected, "the plugin should have asked {expected} times for {}: {asked:?}", pod.name);
    sandbox.start_containers()?;
    let ip = sandbox.ip()?;
    let [sandbox_took, add_took] = [took, mesh.last_add_took()?].map(|took| took.as_secs_f64() * 1e3);
    page.done(
        &format!("{}/{}", pod.namespace, pod.name),
        &format!("{ip}  ADD {add_took:>5.1} ms  sandbox {sandbox_took:>4.0} ms  {how}"),
    );
    Ok(sandbox)
}

/// Everyone who takes part.
struct Cast<'n> {
    node: &'n Node,
    server: Outside,
    web: Sandbox<'n>,
    cart: Sandbox<'n>,
    plain: Sandbox<'n>,
}

/// A request, what came of it, and what should have.
struct Request {
    who: &'static str,
    whom: &'static str,
    answer: Trace,
    expected: Vec<(&'static str, SocketAddr)>,
}

impl Request {
    fn row(&self) -> Result<[String; 4]> {
        let Self { who, whom, answer, expected } = self;
        ensure!(answer.hops() == *expected, "{who} asked {whom}: expected {expected:?}, but the way was {answer}");
        // On all of these ways everyone names the same destination.
        let meant = expected.first().map(|(_, address)| format!("({address})")).unwrap_or_default();
        let way: Vec<&str> = expected.iter().map(|(who, _)| *who).collect();
        Ok([(*who).to_owned(), format!("asked {whom}"), format!("→ {}", way.join(" → ")), meant])
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
                who: "the node",
                whom: "web-0",
                answer: outside::ask(node, web)?,
                expected: vec![(inbound, web), ("app", web)],
            },
            Request {
                who: "app in web-0",
                whom: "a server",
                answer: self.web.ask("app", there)?,
                expected: vec![(outbound, there), ("server", there)],
            },
            Request {
                who: "app in web-0",
                whom: "cart-0",
                answer: self.web.ask("app", cart)?,
                expected: vec![(outbound, cart), (inbound, cart), ("app", cart)],
            },
            Request {
                who: "istio-proxy in web-0",
                whom: "a server",
                answer: self.web.ask("istio-proxy", there)?,
                expected: vec![("server", there)],
            },
            Request {
                who: "the node",
                whom: "plain-0",
                answer: outside::ask(node, plain)?,
                expected: vec![("app", plain)],
            },
            Request {
                who: "app in plain-0",
                whom: "a server",
                answer: self.plain.ask("app", there)?,
                expected: vec![("server", there)],
            },
        ])
    }

    /// The containers' own words: `WHO from ADDRESS to ADDRESS`.
    fn seen_in_web(&self) -> Result<Vec<[String; 2]>> {
        let mut rows = Vec::new();
        for container in &self.web.pod().containers {
            for line in self.web.log(container)?.iter().filter(|line| line.contains(" from ")) {
                let (who, ends) = line.split_once(" from ").context("a line of a container's log")?;
                rows.push([who.to_owned(), ends.replace(" to ", " → ")]);
            }
        }
        ensure!(rows.len() == 4, "two proxied requests in or out, one of them to the app: {rows:?}");
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
        ensure!(left.is_empty(), "the pods have left behind: {left:?}");
        Ok(())
    }
}
