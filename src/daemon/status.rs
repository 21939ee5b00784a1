//! Passes the installer's status on: to probes, to repair, and to the tasks that wait for a node that is ready.

use tokio::sync::watch;

use crate::agent::Cache;
use crate::install::Status;
use crate::serve::health::Readiness;

/// The part of readiness that the installer reports.
pub(super) const INSTALL: &str = "install";

/// Keeps `ready` saying whether pods that start on this node are redirected, and whether that is this agent's business: the
/// plugin is installed, and the agent knows the node's pods.
pub(super) async fn serves_pods(
    mut status: watch::Receiver<Status>,
    mut acting: watch::Receiver<bool>,
    cache: Cache,
    ready: watch::Sender<bool>,
) {
    cache.filled().await;
    loop {
        let serves = *status.borrow_and_update() == Status::Ready && *acting.borrow_and_update();
        ready.send_if_modified(|ready| std::mem::replace(ready, serves) != serves);
        let changed = tokio::select! {
            changed = status.changed() => changed,
            changed = acting.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Notes that the node is ready, once it is, and never returns.
pub(super) async fn note_ready(mut status: watch::Receiver<Status>, was_ready: &mut bool) {
    *was_ready |= status.wait_for(|status| *status == Status::Ready).await.is_ok();
    std::future::pending::<()>().await;
}

/// Tells probes how far the installer is.
pub(super) async fn report(mut status: watch::Receiver<Status>, readiness: Readiness) {
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
