//! The life of the server: its tasks from start to drain.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;

use super::bundle::Selection;
use super::callers;
use super::certificates::{self, Certificates};
use super::configuration::{self, Build, Configured, Loader, Source};
use super::endpoint::{Endpoint, Route};
use super::events;
use super::metrics::Metrics;
use super::present::{self, Managed};
use crate::serve::health::{self, Liveness, Readiness};
use crate::serve::http::{self, Handler, Limits, Refusal, Request, Response};
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
    /// File of the authorities whose certificates callers must have; none: whoever reaches the port may ask.
    pub callers: Option<PathBuf>,
    /// Webhook configurations whose caBundle is kept right; none: somebody else does it.
    pub bundles: Option<(Client, Vec<Selection>)>,
    /// Between the patch of a caBundle and a certificate that needs it.
    pub settle: Duration,
    /// The configuration of `/inject`.
    pub source: Source,
    /// What it means.
    pub build: Build,
    /// Where refusals become Events on the owners of pods; none: nowhere.
    pub events: Option<Client>,
    /// Further routes.
    pub routes: Vec<Route>,
    /// What is missing already, such as facts that those routes need.
    pub readiness: Readiness,
    /// How long requests are still taken after the wish to end: until then nobody has heard of it.
    pub linger: Duration,
}

impl Settings {
    /// What the API server may take: it keeps connections, and a review of two objects that are as large as it takes them, with
    /// what JSON escapes, is not above what Istio reads. Manifests have it wait for ten seconds.
    pub fn limits() -> Limits {
        Limits {
            head: 16 << 10,
            body: 6 << 20,
            memory: 32 << 20,
            connections: 1024,
            first: Duration::from_secs(5),
            // It closes what it does not need after 90 s. Closed from here, a connection could be closed upon a request.
            idle: Duration::from_secs(120),
            read: Duration::from_secs(4),
            request: Duration::from_secs(9),
            connection: Duration::from_secs(600),
            drain: Duration::from_secs(10),
        }
    }
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// TLS.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// Certificates of callers cannot be checked.
    #[error(transparent)]
    Callers(#[from] callers::Error),
    /// There can be no threads for reviews.
    #[error("no threads can be made for reviews: raise the container's limit of processes")]
    Threads(#[source] std::io::Error),
}

/// Serves until the end is wished, and what is under way then.
///
/// # Errors
/// It cannot start: nobody who should have a certificate is served without.
pub async fn run(settings: Settings, mut registry: Registry, shutdown: Shutdown) -> Result<(), Error> {
    metrics::register_build(&mut registry, "sidecar-injector");
    let (metrics, tls) = (Metrics::new(&mut registry), Tls::new()?);
    settings.callers.as_deref().map_or(Ok(()), |path| callers::demand(path, &tls))?;
    let mut parts = vec![configuration::PART, certificates::PART];
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
    let (notices, noticed) = events::channel();
    let (settle, routes) = (settings.settle, routes(configured, settings.routes));
    let has_own_authorities = matches!(settings.certificates, Certificates::Files(_));
    let managed =
        settings.bundles.map(|(client, selections)| Managed { client, selections, settle, has_own_authorities });
    let keeping = async {
        tokio::join!(
            configuration::watch(settings.source, loader),
            certificates::watch(settings.certificates, newest, metrics.clone(), readiness.clone()),
            callers::watch(settings.callers, tls.clone()),
            present::present(managed, presentable, tls.clone(), metrics.clone(), readiness.clone()),
            events::write_events(settings.events, noticed),
        )
    };
    // An eighth of a request's time is left to write an answer.
    let time = settings.limits.request * 7 / 8;
    let endpoint = Endpoint::new(routes, metrics.clone(), time).map_err(Error::Threads)?.announcing(notices);
    let answer = Leaving { endpoint, shutdown: shutdown.clone() };
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
        shutdown.requested().await;
        readiness.missing(PART, "ending");
        sleep(settings.linger).await;
        ended.trigger();
    };
    tokio::select! {
        _ = async { tokio::join!(serving, lingering) } => Ok(()),
        _ = keeping => Ok(()),
    }
}

/// An endpoint whose answers are the last on their connections once the end is wished: a connection that is kept would be closed
/// one day, upon a request perhaps; another one leads to another replica.
struct Leaving {
    endpoint: Endpoint,
    shutdown: Shutdown,
}

impl Handler for Leaving {
    async fn answer(&self, request: Request) -> Response {
        let response = self.endpoint.answer(request).await;
        if self.shutdown.is_requested() { http::closing(response) } else { response }
    }

    fn refused(&self, refusal: &Refusal) {
        self.endpoint.refused(refusal);
    }
}

fn routes(configured: Configured, others: Vec<Route>) -> Vec<Route> {
    let inject = Route { path: "/inject", below: true, profile: Arc::new(configured) };
    std::iter::once(inject).chain(others).collect()
}

fn monitor(request: &Request, readiness: &Readiness, registry: &Registry) -> Response {
    match request.uri().path() {
        "/metrics" => metrics::answer(request, registry),
        _ => health::answer(request, readiness, &Liveness::default()),
    }
}
