//! Runs the watchdog for pods that request Dapr's sidecar but lack it, because they were created while the webhook was
//! not available.
//!
//! The binary starts it as a task. `repair` detects, decides and acts; this module runs it only while the injector is
//! ready, because otherwise the replacement of a deleted pod would lack the sidecar, too.

use std::time::Duration;

use kube::Client;
use tokio::time::sleep;

use crate::repair::{self, Metrics, Settings};
use crate::serve::health::Readiness;
use crate::serve::shutdown::Shutdown;

/// The interval between checks of the readiness.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The pause after the injector was not ready: the window of the action budget, so that the limit holds across the pause.
const PAUSE: Duration = Duration::from_secs(60);

/// Runs the watchdog. Never returns.
pub async fn watch(client: Client, settings: Settings, metrics: Metrics, readiness: Readiness) {
    loop {
        wait_until(&readiness, true).await;
        let (_trigger, shutdown) = Shutdown::new();
        tokio::select! {
            () = repair::run(client.clone(), settings.clone(), metrics.clone(), shutdown) => {}
            () = wait_until(&readiness, false) => tracing::warn!("the injector is not ready: pods without a sidecar are left alone"),
        }
        sleep(PAUSE).await;
    }
}

async fn wait_until(readiness: &Readiness, ready: bool) {
    while readiness.report().is_none() != ready {
        sleep(CHECK_INTERVAL).await;
    }
}
