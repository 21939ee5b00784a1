//! Accepts the connections of ztunnels.

use std::convert::Infallible;
use std::future::Future;
use std::io;

use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::connection;
use super::ztunnels::Ztunnels;

/// Accepts ztunnels after [`Ztunnels::fill`], until the future is dropped, which closes all connections. `accept` returns sockets
/// of the type `SOCK_SEQPACKET` whose peers are root.
pub async fn serve<F>(ztunnels: &Ztunnels, accept: impl Fn() -> F) -> Infallible
where
    F: Future<Output = io::Result<UnixStream>>,
{
    ztunnels.filled().await;
    let mut connections = JoinSet::new();
    let mut pace = interval(ztunnels.limits().interval);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        pace.tick().await;
        match accept().await {
            Ok(socket) => drop(connections.spawn(connection::run(ztunnels.clone(), socket))),
            Err(error) => tracing::warn!(%error, "a connection of ztunnel cannot be accepted"),
        }
        while connections.try_join_next().is_some() {}
    }
}
