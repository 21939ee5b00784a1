//! Could anybody be asked about a pod right now? For STATUS, which speaks before there is a pod.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use super::{agent, kubeconfig};
use crate::contract;

/// Nobody could be asked, and why.
#[derive(Debug, thiserror::Error)]
#[error("the agent cannot be asked ({agent}), and neither can the API server ({api})")]
pub struct Unavailable {
    /// Why the agent cannot.
    pub agent: Box<agent::Error>,
    /// Why the API server cannot.
    pub api: Box<Unreachable>,
}

/// Why the API server cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum Unreachable {
    /// Its kubeconfig is of no use.
    #[error("{0}")]
    Kubeconfig(kubeconfig::Error),
    /// It takes no connection.
    #[error("no connection to {server}: {error}")]
    Connect {
        /// Where it should be.
        server: SocketAddr,
        /// Why not.
        error: io::Error,
    },
}

/// Whether the agent listens or, failing that, the API server takes connections; each within `limit`.
pub fn available(run_dir: &Path, limit: Duration) -> Result<(), Unavailable> {
    let Err(agent) = agent::listens(&run_dir.join(contract::AGENT_SOCKET), limit) else { return Ok(()) };
    reachable(&run_dir.join(contract::KUBECONFIG), limit)
        .map_err(|api| Unavailable { agent: Box::new(agent), api: Box::new(api) })
}

fn reachable(path: &Path, limit: Duration) -> Result<(), Unreachable> {
    let config = kubeconfig::load(path).map_err(Unreachable::Kubeconfig)?;
    let server = config.server;
    TcpStream::connect_timeout(&server, limit).map_err(|error| Unreachable::Connect { server, error })?;
    Ok(())
}
