//! Converts SIGTERM and SIGINT to a request to shut down.
//!
//! Each daemon calls it once, when it starts.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

use super::shutdown::{Shutdown, Trigger};

/// Handles SIGTERM and SIGINT from now on; they no longer end the process.
pub fn listen() -> io::Result<Shutdown> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (trigger, shutdown) = Shutdown::new();
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "ending");
        Trigger::trigger(&trigger);
        // Keeps the channel open for later receivers.
        std::future::pending::<()>().await;
    });
    Ok(shutdown)
}
