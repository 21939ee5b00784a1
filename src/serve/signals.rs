//! SIGTERM and SIGINT → the wish to end.
//!
//! Only binaries' `daemon` and `webhook` rooms call it, once.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

use super::shutdown::{Shutdown, Trigger};

/// From now on SIGTERM and SIGINT no longer end the process, but wish the end.
pub fn listen() -> io::Result<Shutdown> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (trigger, shutdown) = Shutdown::new();
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "ending");
        Trigger::wish(&trigger);
        // Kept for ever: whoever listens later hears it, too.
        std::future::pending::<()>().await;
    });
    Ok(shutdown)
}
