//! Runs the watchdog for pods that request Dapr's sidecar but lack it, because they were created while the webhook was
//! not available.
//!
//! The binary starts [`watch`] as a task. `repair` finds such pods and reports or deletes them. This module runs
//! `repair` only while the injector is ready, because otherwise the replacement of a deleted pod would lack the
//! sidecar, too.

use std::time::Duration;

use kube::Client;
use serve::health::Readiness;
use serve::shutdown::Shutdown;
use tokio::time::sleep;

use repair::{Metrics, RepairSettings};

/// The interval between checks of the readiness.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The pause before `repair` runs again after the injector was not ready. It is as long as the period for which
/// `repair` limits the number of actions, so that two runs do not exceed this limit together.
const PAUSE: Duration = Duration::from_secs(60);

/// Runs the watchdog. Never returns.
pub async fn watch(client: Client, settings: RepairSettings, metrics: Metrics, readiness: Readiness) {
    loop {
        wait_until(&readiness, true).await;
        let (_trigger, shutdown) = Shutdown::new();
        tokio::select! {
            () = repair::run(client.clone(), settings.clone(), metrics.clone(), shutdown) => {}
            () = wait_until(&readiness, false) => {
                tracing::warn!("the injector is not ready: pods without a sidecar are neither reported nor deleted");
            },
        }
        sleep(PAUSE).await;
    }
}

async fn wait_until(readiness: &Readiness, ready: bool) {
    while readiness.report().is_none() != ready {
        sleep(CHECK_INTERVAL).await;
    }
}
