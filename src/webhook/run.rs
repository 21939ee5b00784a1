//! The life of the server: its tasks from start to drain.

use std::time::Duration;

use kube::Client;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;

use super::answer::{Endpoint, Route};
use super::bundle::Selection;
use super::configuration::{self, Build, Configured, Loader, Source};
use super::keep::{self, Certificates};
use super::metrics::Metrics;
use super::present::{self, Managed};
use crate::serve::health::{self, Readiness};
use crate::serve::http::{self, Limits, Request};
use crate::serve::metrics;
use crate::serve::shutdown::Shutdown;
use crate::serve::tls::Tls;

/// The part of readiness that ends with the server.
const PART: &str = "server";

/// All that a server needs.
pub struct Settings {
    /// Where reviews come in.
    pub webhook: TcpListener,
    /// Where probes and scrapes come in.
    pub monitoring: TcpListener,
    /// What a peer of the webhook may take.
    pub limits: Limits,
    /// The server's certificate.
    pub certificates: Certificates,
    /// Webhook configurations whose caBundle is kept right; none: somebody else does it.
    pub bundles: Option<(Client, Vec<Selection>)>,
    /// Between the patch of a caBundle and a certificate that needs it.
    pub settle: Duration,
    /// The configuration of `/inject`.
    pub source: Source,
    /// What it means.
    pub build: Build,
    /// Further routes.
    pub routes: Vec<Route>,
    /// What is missing already, such as facts that those routes need.
    pub readiness: Readiness,
    /// How long requests are still taken after the wish to end: until then nobody has heard of it.
    pub linger: Duration,
}

impl Settings {
    /// What the API server may take: it keeps connections, and a review of two objects that are as large as it takes them, with
    /// what JSON escapes, is not above what Istio reads.
    pub fn limits() -> Limits {
        Limits {
            head: 64 << 10,
            body: 6 << 20,
            connections: 1024,
            // It closes what it does not need after 90 s. Closed from here, a connection could be closed upon a request.
            idle: Duration::from_secs(120),
            request: Duration::from_secs(10),
            connection: Duration::from_secs(600),
            drain: Duration::from_secs(10),
        }
    }
}

/// Serves until the end is wished, and what is under way then.
pub async fn run(settings: Settings, mut registry: Registry, shutdown: Shutdown) -> Result<(), rustls::Error> {
    let (metrics, tls) = (Metrics::new(&mut registry), Tls::new()?);
    let mut parts = vec![configuration::PART, keep::PART];
    parts.extend(settings.bundles.is_some().then_some(present::PART));
    let readiness = settings.readiness;
    parts.into_iter().for_each(|part| readiness.missing(part, "starting"));
    let (newest, presentable) = watch::channel(None);
    let configured = Configured::default();
    let loader = Loader {
        build: settings.build,
        configured: configured.clone(),
        metrics: metrics.clone(),
        readiness: readiness.clone(),
        last: None,
    };
    let (settle, routes) = (settings.settle, routes(configured, settings.routes));
    let managed = settings.bundles.map(|(client, selections)| Managed { client, selections, settle });
    let keeping = async {
        tokio::join!(
            configuration::keep(settings.source, loader),
            keep::keep(settings.certificates, newest, metrics.clone(), readiness.clone()),
            present::present(managed, presentable, tls.clone(), metrics.clone(), readiness.clone()),
        )
    };
    let endpoint = Endpoint::new(routes, metrics.clone());
    let leaving = shutdown.clone();
    let answer = move |request: Request| {
        let response = endpoint.answer(&request);
        // Whoever has kept a connection would find it closed one day; on another it finds another replica.
        std::future::ready(if leaving.is_wished() { http::closing(response) } else { response })
    };
    let (ended, ending) = Shutdown::new();
    let (probed, scraped) = (readiness.clone(), registry);
    let monitor = move |request: Request| std::future::ready(monitor(&request, &probed, &scraped));
    let (open, limits) = (tls.clone(), settings.limits);
    let serving = async {
        tokio::join!(
            http::serve_over(settings.webhook, limits, move |stream| open.open(stream), answer, ending.clone()),
            http::serve(settings.monitoring, Limits::default(), monitor, ending),
        )
    };
    let lingering = async {
        shutdown.wished().await;
        readiness.missing(PART, "ending");
        sleep(settings.linger).await;
        ended.wish();
    };
    tokio::select! {
        _ = async { tokio::join!(serving, lingering) } => Ok(()),
        _ = keeping => Ok(()),
    }
}

fn routes(configured: Configured, others: Vec<Route>) -> Vec<Route> {
    let inject = Route { path: "/inject", below: true, profile: std::sync::Arc::new(configured) };
    std::iter::once(inject).chain(others).collect()
}

fn monitor(request: &Request, readiness: &Readiness, registry: &Registry) -> http::Response {
    match request.uri().path() {
        "/metrics" => metrics::answer(request, registry),
        _ => health::answer(request, readiness),
    }
}
