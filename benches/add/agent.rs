//! A double of the node agent with the least possible cost: its answer is precomputed.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use anyhow::{Context as _, Result};
use istio_cni::contract;
use istio_cni::pod::PodFacts;

/// The number of accepting threads, that of an agent's workers on a small node.
const WORKERS: usize = 2;

/// Answers each request on the run directory's socket with these facts, until the bench ends.
pub(crate) fn start(run_dir: &Path, facts: &PodFacts) -> Result<()> {
    let socket = run_dir.join(contract::AGENT_SOCKET);
    let listener = UnixListener::bind(&socket).with_context(|| socket.display().to_string())?;
    let body = serde_json::to_string(facts)?;
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    for _ in 0..WORKERS {
        let (listener, answer) = (listener.try_clone()?, answer.clone());
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                // A caller that disconnects fails its own run.
                let _ = serve(stream, answer.as_bytes());
            }
        });
    }
    Ok(())
}

fn serve(mut stream: UnixStream, answer: &[u8]) -> std::io::Result<()> {
    let mut request = Vec::with_capacity(4096);
    let mut chunk = [0; 4096];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut chunk)? {
            0 => return Ok(()),
            count => request.extend_from_slice(&chunk[..count]),
        }
    }
    stream.write_all(answer)
}
