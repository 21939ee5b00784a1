//! Binds and serves `agent.sock` and `log.sock` in the run directory, and limits their use.

#![expect(clippy::disallowed_methods, reason = "owns the clock of the relayed log lines")]

use std::io;
use std::path::Path;
use std::time::Duration;

use hyper::{Method, StatusCode};
use podfacts::requests;
use serve::http::{self, Limits, Request, Response, text};
use serve::listen::{Error, Name, PrivateSocket};
use serve::shutdown::Shutdown;

use super::events;
use super::relay;
use super::response::{self, Sources};

/// The two bound sockets. The kernel queues connections to them until [`serve()`] accepts them.
#[derive(Debug)]
pub struct Sockets {
    agent: PrivateSocket,
    log: PrivateSocket,
}

/// The paths of both sockets, which can be used while [`serve()`] owns the [`Sockets`].
#[derive(Debug, Clone)]
pub struct Names {
    agent: Name,
    log: Name,
}

/// The limits of `agent.sock`. A node starts up to a few hundred pods at once, and the plugin opens a connection for each; idle
/// connections are closed after three seconds.
const AGENT: Limits = Limits {
    head: 8 << 10,
    body: 1 << 10,
    memory: 512 << 10,
    connections: 512,
    first: Duration::from_secs(3),
    idle: Duration::from_secs(3),
    read: Duration::from_secs(2),
    request: Duration::from_secs(3),
    connection: Duration::from_secs(30),
    drain: Duration::from_secs(2),
};

/// The limits of `log.sock`. A body has the lines of one invocation of the plugin.
const LOG: Limits = Limits { body: 1 << 20, memory: 8 << 20, connections: 64, ..AGENT };

impl Sockets {
    /// Binds both sockets and renames them into `run_dir`, which is created if it is missing.
    ///
    /// `agent.sock` is renamed last: if either socket cannot be bound, the agent that listens on `agent.sock` keeps it.
    pub fn bind(run_dir: &Path) -> Result<Self, Error> {
        let bind = |name: &str| PrivateSocket::bind(&run_dir.join(name));
        let log = bind(contract::LOG_SOCKET)?;
        Ok(Self { agent: bind(contract::AGENT_SOCKET)?, log })
    }

    pub fn names(&self) -> Names {
        Names { agent: self.agent.name(), log: self.log.name() }
    }
}

impl Names {
    /// Whether another agent serves `agent.sock`. `log.sock` proves nothing, because Istio's agent serves it, too.
    pub async fn are_taken_over(&self) -> bool {
        self.agent.is_taken_over().await
    }

    /// Whether one of the two paths leads to no listener: its file was removed, or another process took it over and has
    /// ended.
    pub async fn are_lost(&self) -> bool {
        for name in [&self.agent, &self.log] {
            if !name.is_ours() && !name.is_taken_over().await {
                return true;
            }
        }
        false
    }

    /// Removes the paths that no other agent has taken over.
    pub fn remove(&self) -> Vec<io::Error> {
        [&self.agent, &self.log].into_iter().filter_map(|name| name.remove().err()).collect()
    }
}

/// Serves both sockets until shutdown is requested.
pub async fn serve(sockets: Sockets, sources: Sources, shutdown: Shutdown) {
    let Sockets { agent, log: lines } = sockets;
    let (end, lines_to) = (shutdown.clone(), sources.clone());
    let respond = move |request| {
        let (sources, end) = (sources.clone(), end.clone());
        async move { response::respond(request, &sources, &end).await }
    };
    let relay = move |request: Request| std::future::ready(log_lines(&request, &lines_to));
    tokio::join!(http::serve(agent, AGENT, respond, shutdown.clone()), http::serve(lines, LOG, relay, shutdown));
}

/// Logs the lines of a `POST /log`.
fn log_lines(request: &Request, sources: &Sources) -> Response {
    let Sources { cache, metrics, verdicts, notices, log, .. } = sources;
    if (request.method(), request.uri().path()) != (&Method::POST, requests::LOG) {
        return text(StatusCode::NOT_FOUND, "lines require POST /log\n");
    }
    let records = match relay::records(request.body(), jiff::Timestamp::now()) {
        Ok(records) => records,
        Err(error) => {
            tracing::warn!(%error, "the plugin's lines are no JSON array of strings");
            return text(StatusCode::BAD_REQUEST, format!("expected a JSON array of strings: {error}\n"));
        }
    };
    for record in &records {
        relay::sample(record).into_iter().for_each(|sample| metrics.added(sample));
        verdicts.record(record);
        if let Some(notice) = events::notice(record, cache)
            && notices.try_send(notice).is_err()
        {
            tracing::warn!("an Event is dropped, because others wait to be written");
        }
        if relay::is_logged(record) {
            metrics.logged(record.level);
            log.record(record);
        }
    }
    text(StatusCode::OK, "")
}
