//! Runs the tasks of the server, from start to drain.

#![expect(clippy::disallowed_methods, reason = "records when the server started")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use jiff::Timestamp;
use kube::Client;
use prometheus_client::registry::Registry;
use serve::health::{self, Readiness};
use serve::http::{self, Handler, Limits, Refusal, Request, Response};
use serve::metrics;
use serve::page::{Form, Latest, document, requested};
use serve::shutdown::{Shutdown, Trigger};
use serve::tasks::Supervisor;
use serve::tls::Tls;
use tokio::net::TcpListener;
use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use tokio::time::sleep;

use super::bundle::Selection;
use super::callers;
use super::certificates::{self, Certificates};
use super::configuration::{self, Build, Configured, Loader, Source};
use super::endpoint::{Endpoint, Route};
use super::events::{self, Notice};
use super::metrics::Metrics;
use super::page;
use super::present::{self, Managed};
use super::report::{self, Described, Reporter, StatusPage};

/// The name under which the server reports its readiness, which ends when shutdown is requested.
const PART: &str = "server";

/// The settings of a server.
pub struct ServerSettings {
    /// The listener for reviews.
    pub webhook: TcpListener,
    /// The listener for probes and metrics.
    pub monitoring: TcpListener,
    /// The limits for the webhook's clients and their requests.
    pub limits: Limits,
    /// The source of the server's certificate.
    pub certificates: Certificates,
    /// The file of the CAs that must have signed callers' certificates; `None`: callers need no certificate.
    pub callers: Option<PathBuf>,
    /// The webhook configurations whose caBundle is managed; `None`: another program manages it.
    pub bundles: Option<(Client, Vec<Selection>)>,
    /// The delay from the patch of a caBundle to the presentation of a certificate that requires it.
    pub settle: Duration,
    /// The source of the configuration of `/inject`.
    pub source: Source,
    /// Makes a profile from the configuration of `/inject`.
    pub build: Build,
    /// The client that writes Events on the owners of reviewed pods; `None`: no Events.
    pub events: Option<Client>,
    /// The settings of the status page on the monitoring port; `None`: no page.
    pub status_page: Option<StatusPage>,
    /// The routes in addition to `/inject`.
    pub routes: Vec<Route>,
    /// Supervises the server's tasks, and those of `routes`. Its readiness is the server's.
    pub supervisor: Supervisor,
    /// The time for which requests are served after shutdown is requested, while the endpoint is removed from the
    /// Service.
    pub linger: Duration,
}

impl ServerSettings {
    /// Returns limits for API servers as clients, which keep connections open. The size limit of a body is Istio's: it
    /// admits a review with two objects of the API server's maximum size, in which JSON escapes characters. The time
    /// limit of a request is below the manifests' timeout of ten seconds.
    pub fn limits() -> Limits {
        Limits {
            head: 16 << 10,
            body: 6 << 20,
            memory: 32 << 20,
            connections: 1024,
            first: Duration::from_secs(5),
            // An API server closes an unused connection after 90 s. If this server closed it earlier, a request that
            // the API server is just sending would be lost.
            idle: Duration::from_secs(120),
            read: Duration::from_secs(4),
            request: Duration::from_secs(9),
            connection: Duration::from_secs(600),
            drain: Duration::from_secs(10),
        }
    }
}

/// Describes the settings for the status page; `None` if there is no page.
fn described(settings: &ServerSettings) -> Option<Described> {
    let StatusPage { revision } = settings.status_page.clone()?;
    let others = settings.routes.iter().map(|route| route.path.to_owned());
    Some(Described {
        revision,
        paths: std::iter::once("/inject".to_owned()).chain(others).collect(),
        configuration: report::configuration(&settings.source),
        certificate: report::certificate(&settings.certificates),
        callers: settings.callers.as_ref().map(|path| path.display().to_string()),
        are_bundles_managed: settings.bundles.is_some(),
    })
}

/// The server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The TLS configuration is invalid.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The CA certificates for callers cannot be loaded.
    #[error(transparent)]
    Callers(#[from] callers::Error),
    /// The threads of reviews cannot be created.
    #[error("the threads for reviews cannot be created: raise the container's limit of processes")]
    Threads(#[source] std::io::Error),
}

/// Serves until shutdown is requested and the responses to accepted requests are sent.
///
/// # Errors
/// The TLS configuration or the CAs for callers are invalid, or the threads for reviews cannot be created. The server
/// never serves callers without the configured check of their certificates.
pub async fn run(settings: ServerSettings, mut registry: Registry, shutdown: Shutdown) -> Result<(), Error> {
    metrics::register_build(&mut registry, "sidecar-injector");
    let (metrics, tls) = (Metrics::new(&mut registry), Tls::new()?);
    settings.callers.as_deref().map_or(Ok(()), |path| callers::load(path, &tls))?;
    let described = described(&settings);
    let mut parts = vec![configuration::PART, certificates::PART];
    parts.extend(settings.bundles.is_some().then_some(present::PART));
    let supervisor = settings.supervisor;
    let readiness = supervisor.readiness().clone();
    parts.into_iter().for_each(|part| readiness.missing(part, "starting"));
    let (newest, presentable) = watch::channel(None);
    let reporter = described.map(|described| Reporter {
        described,
        started: Timestamp::now(),
        readiness: readiness.clone(),
        activity: metrics.activity().clone(),
        newest: presentable.clone(),
        latest: Latest::default(),
    });
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
    let ((end, ending), (close, closed)) = (Shutdown::new(), Shutdown::new());
    let certificates = certificates::watch(settings.certificates, newest, metrics.clone(), readiness.clone());
    let present = present::present(managed, presentable, tls.clone(), metrics.clone(), readiness.clone());
    let maintenance = [
        supervisor.run("configuration", &closed, configuration::watch(settings.source, loader)).boxed(),
        supervisor.run("certificates", &closed, certificates).boxed(),
        supervisor.run("callers", &closed, callers::watch(settings.callers, tls.clone())).boxed(),
        supervisor.run("caBundles", &closed, present).boxed(),
        supervisor
            .auxiliary()
            .run_to_end("events", &ending, write_events(settings.events, noticed, closed.clone()))
            .boxed(),
    ];
    // An eighth of a request's time remains for writing the response.
    let time = settings.limits.request * 7 / 8;
    let endpoint = Endpoint::new(routes, metrics.clone(), time).map_err(Error::Threads)?.announcing(notices);
    let handler = Draining { endpoint, shutdown: shutdown.clone() };
    let (probed, scraped) = (supervisor.clone(), registry);
    let monitor = move |request: Request| {
        let status = reporter.as_ref().and_then(|reporter| status(&request, reporter));
        std::future::ready(status.unwrap_or_else(|| monitor(&request, &probed, &scraped)))
    };
    let (open, limits) = (tls.clone(), settings.limits);
    let reviews = http::serve_over(settings.webhook, limits, move |stream| open.open(stream), handler, ending.clone());
    let monitoring = http::serve(settings.monitoring, Limits::default(), monitor, ending);
    // A panic of a server ends the process: the kubelet restarts it sooner than after failed probes.
    let served = async {
        tokio::join!(reviews, monitoring, linger(&shutdown, &readiness, settings.linger, end));
        close.trigger();
    };
    tokio::join!(served, join_all(maintenance));
    Ok(())
}

/// Writes the Events of reviews. Ends with the last server, or if that drops the last sender of notices before.
async fn write_events(client: Option<Client>, notices: Receiver<Notice>, closed: Shutdown) {
    tokio::select! {
        () = closed.requested() => {}
        () = events::write_events(client, notices) => {}
    }
}

/// Requests the end of the servers once shutdown has been requested for as long as the endpoint needs to leave the Service.
async fn linger(shutdown: &Shutdown, readiness: &Readiness, time: Duration, end: Trigger) {
    shutdown.requested().await;
    readiness.missing(PART, "ending");
    sleep(time).await;
    end.trigger();
}

/// An endpoint that closes each connection with its next response once shutdown is requested, so that the API server's
/// next request reaches another replica instead of a closed connection.
struct Draining {
    endpoint: Endpoint,
    shutdown: Shutdown,
}

impl Handler for Draining {
    async fn handle(&self, request: Request) -> Response {
        let response = self.endpoint.handle(request).await;
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

/// Returns the response to a request for the status page or its document; `None` for another request.
fn status(request: &Request, reporter: &Reporter) -> Option<Response> {
    let form = requested(request)?;
    let report = reporter.report();
    Some(match form {
        Form::Page => page::respond(&report),
        Form::Document => document(&*report),
    })
}

fn monitor(request: &Request, supervisor: &Supervisor, registry: &Registry) -> Response {
    match request.uri().path() {
        "/metrics" => metrics::respond(request, registry),
        _ => health::respond(request, supervisor.readiness(), supervisor.liveness()),
    }
}
