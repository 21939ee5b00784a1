//! Requests from the agent that has taken over the sockets the directories of its installation.

use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;

use super::decide::Successor;
use crate::install::{Directories, Settings};
use crate::{agent, contract, pod};

/// The time limit of the request, connecting included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the successor, with its directories compared with those of `settings`.
pub(super) async fn query(settings: &Settings) -> Successor {
    let (socket, settings) = (settings.run_dir.join(contract::AGENT_SOCKET), settings.clone());
    let queried = tokio::task::spawn_blocking(move || {
        let successors = directories(&socket)?;
        let own = Directories::of(&settings).map_err(|error| error.to_string())?;
        Ok::<_, String>(Successor::Installed(own.relocation_to(successors)))
    });
    // The limit also covers the node's directories, whose file systems may hang.
    match timeout(2 * REQUEST_TIMEOUT, queried)
        .await
        .unwrap_or_else(|_| Ok(Err("the node's directories do not answer".to_owned())))
    {
        Ok(Ok(successor)) => successor,
        Ok(Err(why)) => Successor::Unknown(why),
        // The process's hook reports a panic.
        Err(_) => Successor::Unknown("the query has failed".to_owned()),
    }
}

fn directories(socket: &Path) -> Result<Directories, String> {
    let answer = pod::agent::get(socket, agent::DIRECTORIES, REQUEST_TIMEOUT).map_err(|error| error.to_string())?;
    match answer.status {
        200 => serde_json::from_slice(&answer.body).map_err(|error| format!("an answer of another kind: {error}")),
        503 => Err("it has not installed the plugin yet".to_owned()),
        status => Err(format!("it answers {status}")),
    }
}
