//! Determines the successor, the agent that has taken over the sockets: requests the directories of its installation,
//! and compares them with this agent's directories.

#![expect(clippy::disallowed_methods, reason = "owns the deadline of the query")]

use std::path::Path;
use std::time::Duration;

use podfacts::requests::DIRECTORIES;
use tokio::time::{Instant, sleep, timeout};

use super::decide::Successor;
use crate::install::{Directories, InstallSettings, Relocation, directories_of};

/// The time limit of the request, connecting included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// The time within which an agent that has just taken over completes its installation.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval between two queries for the directories of that installation.
const INSTALL_INTERVAL: Duration = Duration::from_millis(50);

/// Returns the successor if that is known without a query for its directories.
pub(super) fn without_query(is_taken_over: bool, has_installed: bool) -> Option<Successor> {
    match (is_taken_over, has_installed) {
        (false, _) => Some(Successor::None),
        // An agent that has installed no files, for example because it was never active, has none to remove.
        (true, false) => Some(Successor::Installed(Relocation::default())),
        (true, true) => None,
    }
}

/// Returns the successor as its response describes it: installed in its directories, or unknown with the reason.
pub(super) fn from_response(own: Directories, response: Result<Directories, String>) -> Successor {
    response.map_or_else(Successor::Unknown, |successors| Successor::Installed(own.relocation_to(successors)))
}

/// Returns the successor, with its directories compared with those of `settings`.
pub(super) async fn query(settings: &InstallSettings) -> Successor {
    let (socket, settings) = (settings.run_dir.join(contract::AGENT_SOCKET), settings.clone());
    let queried = tokio::task::spawn_blocking(move || {
        let response = directories(&socket);
        let own = directories_of(&settings).map_err(|error| error.to_string())?;
        Ok::<_, String>(from_response(own, response))
    });
    // The limit also covers reading this agent's directories, whose file systems may hang.
    match timeout(2 * REQUEST_TIMEOUT, queried)
        .await
        .unwrap_or_else(|_| Ok(Err("a directory of the node is not responding".to_owned())))
    {
        Ok(Ok(successor)) => successor,
        Ok(Err(why)) => Successor::Unknown(why),
        // The panic hook reports the panic.
        Err(_) => Successor::Unknown("the query has failed".to_owned()),
    }
}

/// Returns the successor that has just taken over: queries it until it has installed the plugin, or [`INSTALL_TIMEOUT`] has passed.
pub(super) async fn installed(settings: &InstallSettings) -> Successor {
    let end = Instant::now() + INSTALL_TIMEOUT;
    loop {
        let successor = query(settings).await;
        if !matches!(successor, Successor::Unknown(_)) || Instant::now() >= end {
            return successor;
        }
        sleep(INSTALL_INTERVAL).await;
    }
}

fn directories(socket: &Path) -> Result<Directories, String> {
    let response = lookup::agent::get(socket, DIRECTORIES, REQUEST_TIMEOUT).map_err(|error| error.to_string())?;
    match response.status {
        200 => serde_json::from_slice(&response.body).map_err(|error| format!("an invalid response: {error}")),
        503 => Err("it has not installed the plugin yet".to_owned()),
        status => Err(format!("it responds with {status}")),
    }
}
