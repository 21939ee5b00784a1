//! The shipped `install-cni` as a process, with an API server double that has the measured pods. As on a node, the
//! daemon serves the plugin's lookups and receives its log lines.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use tokio::runtime::Runtime;

use crate::case::Case;
use crate::pod;
use test_support::api::Api;
use test_support::daemon::{Daemon, Node, cluster, until};

/// A running daemon, stopped on drop.
pub(crate) struct Agent {
    _daemon: Daemon,
    node: Node,
    _api: Api,
    _runtime: Runtime,
}

impl Agent {
    /// Starts a daemon and waits until it serves lookups of the measured pods.
    pub(crate) fn start() -> Result<Self> {
        // One thread of the API server double is enough for the daemon's watches.
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().context("the API server's runtime")?;
        let api = runtime.block_on(cluster());
        for case in Case::ALL {
            api.put(pod::object(case));
        }
        // The run directory is on a tmpfs, as `/var/run` is on a node.
        let node = Node::within(tempfile::tempdir_in("/run")?);
        let daemon = Daemon::start(&node, &api.url());
        daemon.ready();
        for case in Case::ALL {
            until("the agent to know the pods", || match node.request(pod::name(case), pod::UID) {
                (200, _) => Ok(()),
                (status, body) => Err(format!("{status} {body}; log: {}", daemon.log_text())),
            });
        }
        Ok(Self { _daemon: daemon, node, _api: api, _runtime: runtime })
    }

    /// Returns the directory of the daemon's sockets.
    pub(crate) fn run_dir(&self) -> PathBuf {
        self.node.path("run")
    }
}
