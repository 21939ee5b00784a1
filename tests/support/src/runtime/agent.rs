//! A double of the node agent, which answers `GET /pod?namespace=…&name=…` on its socket with the pod's fields.

use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use nix::sys::socket::{Shutdown, shutdown};

use super::cluster::Cluster;
use super::http::{self, Request};

/// A running double. Dropping it removes the socket.
#[derive(Debug)]
pub struct Agent {
    socket: PathBuf,
    listener: UnixListener,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Starts a double with its socket in the run directory.
    pub fn start(run_dir: &Path, cluster: Arc<Cluster>) -> Result<Self> {
        let socket = run_dir.join(contract::AGENT_SOCKET);
        let listener = UnixListener::bind(&socket).with_context(|| socket.display().to_string())?;
        let accepting = listener.try_clone()?;
        let thread = std::thread::spawn(move || {
            // The loop ends when the listener is shut down. An error affects one connection only.
            while let Ok((stream, _)) = accepting.accept() {
                if let Ok(request) = Request::read(&stream) {
                    let _ = serve(&request, &cluster, &stream);
                }
            }
        });
        Ok(Self { socket, listener, thread: Some(thread) })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
        let _ = self.thread.take().map(JoinHandle::join);
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn serve(request: &Request, cluster: &Cluster, stream: impl std::io::Write) -> Result<()> {
    cluster.record("agent", &request.line);
    let query = request.target().and_then(|target| target.strip_prefix("/pod?")).unwrap_or_default();
    let value = |key: &str| {
        query.split('&').filter_map(|pair| pair.split_once('=')).find(|(k, _)| *k == key).map_or("", |(_, value)| value)
    };
    match cluster.pod(value("namespace"), value("name")) {
        Some(pod) => http::respond(stream, "200 OK", &serde_json::to_string(&pod.facts())?),
        None => http::respond(stream, "404 Not Found", r#"{"message":"no such pod on this node"}"#),
    }
}
