//! Looks for pods that ask for Dapr's sidecar and have none: those that were made while nobody answered the API server.
//!
//! The binary starts it as a task. Finding, deciding, budget and acting are `repair`'s; here is only when: while the injector
//! itself is ready, or what takes a deleted pod's place would be no better.

use std::time::Duration;

use kube::Client;
use tokio::time::sleep;

use crate::repair::{self, Metrics, Settings};
use crate::serve::health::Readiness;
use crate::serve::shutdown::Shutdown;

/// Between two looks at readiness.
const LOOK: Duration = Duration::from_millis(500);
/// After a time without readiness: as long as the budget counts actions, so that it holds across the break.
const REST: Duration = Duration::from_secs(60);

/// Never ends by itself.
pub async fn watch(client: Client, settings: Settings, metrics: Metrics, readiness: Readiness) {
    loop {
        until(&readiness, true).await;
        let (_trigger, shutdown) = Shutdown::new();
        tokio::select! {
            () = repair::run(client.clone(), settings.clone(), metrics.clone(), shutdown) => {}
            () = until(&readiness, false) => tracing::warn!("the injector is not ready: pods without a sidecar are left alone"),
        }
        sleep(REST).await;
    }
}

async fn until(readiness: &Readiness, ready: bool) {
    while readiness.report().is_none() != ready {
        sleep(LOOK).await;
    }
}
