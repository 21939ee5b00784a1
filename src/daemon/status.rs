//! Reports the installer's status to probes, to repair, and to tasks that wait for a ready node.

use serve::health::Readiness;
use tokio::sync::watch;

use crate::agent::Cache;
use crate::install::Status;

/// The [`Readiness`] part that the installer reports.
pub(super) const INSTALL: &str = "install";

/// Sets `ready` to whether this agent redirects pods that start on the node: it is active, the plugin is installed, and the
/// cache of pods has synced.
pub(super) async fn watch_node_ready(
    mut status: watch::Receiver<Status>,
    mut is_active: watch::Receiver<bool>,
    cache: Cache,
    ready: watch::Sender<bool>,
) {
    cache.synced().await;
    loop {
        let is_serving = *status.borrow_and_update() == Status::Ready && *is_active.borrow_and_update();
        ready.send_if_modified(|ready| std::mem::replace(ready, is_serving) != is_serving);
        let changed = tokio::select! {
            changed = status.changed() => changed,
            changed = is_active.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Sets `was_ready` once the node is ready. Never returns.
pub(super) async fn record_ready(mut status: watch::Receiver<Status>, was_ready: &mut bool) {
    *was_ready |= status.wait_for(|status| *status == Status::Ready).await.is_ok();
    std::future::pending::<()>().await;
}

/// Reports the installer's status to probes.
pub(super) async fn report_readiness(mut status: watch::Receiver<Status>, readiness: Readiness) {
    loop {
        match &*status.borrow_and_update() {
            Status::Starting => readiness.missing(INSTALL, "starting"),
            Status::NotReady(missing) => readiness.missing(INSTALL, missing.join("; ")),
            Status::Ready => readiness.ready(INSTALL),
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}
