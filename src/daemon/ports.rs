//! Serves health, metrics and the status page on TCP ports. Binding is retried while a port is in use, and readiness reports the failure.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use serve::health::{self, Liveness, Readiness};
use serve::http::{self, Limits, Request, Response};
use serve::page::{Form, document, requested};
use serve::shutdown::Shutdown;
use serve::{listen, metrics};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::page;
use report::node::SUMMARY;

use super::report::Reporter;

/// The interval between two attempts to bind a port.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Serves probes until shutdown is requested.
pub(super) async fn health(port: u16, readiness: Readiness, liveness: Liveness, shutdown: Shutdown) {
    let Some(listener) = listener("health", port, &readiness, &shutdown).await else { return };
    let handler = move |request| std::future::ready(health::respond(&request, &readiness, &liveness));
    http::serve(listener, Limits::default(), handler, shutdown).await;
}

/// Serves scrapes, and with a `reporter` the status page, until shutdown is requested.
pub(super) async fn monitoring(
    port: u16,
    registry: Arc<Registry>,
    reporter: Option<Arc<Reporter>>,
    readiness: Readiness,
    shutdown: Shutdown,
) {
    let Some(listener) = listener("metrics", port, &readiness, &shutdown).await else { return };
    let handler = move |request: Request| {
        let status = reporter.as_ref().and_then(|reporter| status(&request, reporter));
        std::future::ready(status.unwrap_or_else(|| metrics::respond(&request, &registry)))
    };
    http::serve(listener, Limits::default(), handler, shutdown).await;
}

/// Returns the response to a request for the status page or its document; `None` for another request.
fn status(request: &Request, reporter: &Reporter) -> Option<Response> {
    let form = requested(request)?;
    let report = reporter.report();
    Some(match form {
        Form::Page => page::respond(&report),
        Form::Document if request.uri().query() == Some(SUMMARY) => document(&report.as_ref().clone().summary()),
        Form::Document => document(&*report),
    })
}

async fn listener(part: &'static str, port: u16, readiness: &Readiness, shutdown: &Shutdown) -> Option<TcpListener> {
    loop {
        match listen::port(port).await {
            Ok(listener) => {
                readiness.ready(part);
                return Some(listener);
            }
            Err(error) => {
                tracing::warn!(%error, part, "trying again");
                readiness.missing(part, error.to_string());
            }
        }
        tokio::select! {
            () = sleep(RETRY_INTERVAL) => {}
            () = shutdown.requested() => return None,
        }
    }
}
