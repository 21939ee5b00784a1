//! A double of the node agent with the least possible cost: its response is precomputed.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use anyhow::{Context as _, Result};
use podfacts::PodFacts;

/// The number of threads that accept connections: as many as the agent has workers on a small node.
const WORKERS: usize = 2;

/// Responds to each request on the run directory's socket with `facts`, the pod's data in the agent's format, until the bench ends.
pub(crate) fn start(run_dir: &Path, facts: &PodFacts) -> Result<()> {
    let socket = run_dir.join(contract::AGENT_SOCKET);
    let listener = UnixListener::bind(&socket).with_context(|| socket.display().to_string())?;
    let body = serde_json::to_string(facts)?;
    let length = body.len();
    let response = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    for _ in 0..WORKERS {
        let (listener, response) = (listener.try_clone()?, response.clone());
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                // An error is ignored: a caller that disconnects reports the failure of its run itself.
                let _ = serve(stream, response.as_bytes());
            }
        });
    }
    Ok(())
}

fn serve(mut stream: UnixStream, response: &[u8]) -> std::io::Result<()> {
    let mut request = Vec::with_capacity(4096);
    let mut chunk = [0; 4096];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut chunk)? {
            0 => return Ok(()),
            count => request.extend_from_slice(&chunk[..count]),
        }
    }
    stream.write_all(response)
}
