//! Reads from the agent that has taken the sockets over in which directories it has installed the plugin.

use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;

use super::ending::Successor;
use crate::install::{Directories, Settings};
use crate::{agent, contract, pod};

/// The time limit of the request, connecting included.
const LIMIT: Duration = Duration::from_secs(2);

/// The successor: its answer, compared with the directories of this one's `settings`.
pub(super) async fn ask(settings: &Settings) -> Successor {
    let (socket, settings) = (settings.run_dir.join(contract::AGENT_SOCKET), settings.clone());
    let asked = tokio::task::spawn_blocking(move || {
        let theirs = directories(&socket)?;
        let ours = Directories::of(&settings).map_err(|error| error.to_string())?;
        Ok::<_, String>(Successor::Installed(ours.relocation_to(theirs)))
    });
    // The directories are those of the node, and one of them may hang.
    match timeout(2 * LIMIT, asked).await.unwrap_or_else(|_| Ok(Err("the node's directories do not answer".to_owned())))
    {
        Ok(Ok(successor)) => successor,
        Ok(Err(why)) => Successor::Unknown(why),
        // The process's hook reports a panic.
        Err(_) => Successor::Unknown("asking has failed".to_owned()),
    }
}

fn directories(socket: &Path) -> Result<Directories, String> {
    let answer = pod::agent::get(socket, agent::DIRECTORIES, LIMIT).map_err(|error| error.to_string())?;
    match answer.status {
        200 => serde_json::from_slice(&answer.body).map_err(|error| format!("an answer of another kind: {error}")),
        503 => Err("it has not installed the plugin yet".to_owned()),
        status => Err(format!("it answers {status}")),
    }
}
