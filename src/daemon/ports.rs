//! The TCP ports of health and metrics. Binding is retried while a port is in use, and readiness reports it.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::serve::health::{self, Liveness, Readiness};
use crate::serve::http::{self, Limits};
use crate::serve::shutdown::Shutdown;
use crate::serve::{listen, metrics};

/// The interval between two attempts to bind a port.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Answers probes until shutdown is requested.
pub(super) async fn health(port: u16, readiness: Readiness, liveness: Liveness, shutdown: Shutdown) {
    let Some(listener) = listener("health", port, &readiness, &shutdown).await else { return };
    let answer = move |request| std::future::ready(health::answer(&request, &readiness, &liveness));
    http::serve(listener, Limits::default(), answer, shutdown).await;
}

/// Answers scrapes until shutdown is requested.
pub(super) async fn metrics(port: u16, registry: Arc<Registry>, readiness: Readiness, shutdown: Shutdown) {
    let Some(listener) = listener("metrics", port, &readiness, &shutdown).await else { return };
    let answer = move |request| std::future::ready(metrics::answer(&request, &registry));
    http::serve(listener, Limits::default(), answer, shutdown).await;
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
