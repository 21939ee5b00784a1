//! The agent of a node with 250 pods, which have all possible verdicts.

use serde_json::{Value, json};
use test_support::api::Api;
use test_support::crowd;
use test_support::daemon::{Daemon, Node, cluster, until};
use tokio::runtime::Runtime;

/// A running agent with its API server double.
pub(crate) struct Agent {
    daemon: Daemon,
    _node: Node,
    _api: Api,
    /// The runtime of the double.
    _runtime: Runtime,
}

impl Agent {
    pub(crate) fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let api = runtime.block_on(cluster());
        crowd::create(&api);
        let node = Node::new();
        let daemon = Daemon::with_variables(&node, &api.url(), &[("STATUS_PAGE", "true")]);
        daemon.ready();
        assert_eq!(node.log(&lines()), 200);
        until("all pods", || {
            let (status, text) = daemon.get("/status.json");
            let report: Value = serde_json::from_str(&text).map_err(|error| format!("{status} {error}"))?;
            let added = report["pods"].as_array().into_iter().flatten().filter(|pod| pod["added"].is_string()).count();
            if added == crowd::PODS - 1 { Ok(()) } else { Err(format!("{added} pods were added")) }
        });
        node.remove_entry();
        until("a correction", || match daemon.get("/status") {
            (200, page) if page.contains("no network configuration named the plugin") => Ok(()),
            (status, _) => Err(format!("status {status}")),
        });
        Self { daemon, _node: node, _api: api, _runtime: runtime }
    }

    pub(crate) fn port(&self) -> u16 {
        self.daemon.monitoring()
    }
}

/// Returns the lines of all pods but the last. One pod was skipped, one failed, and one drifted.
fn lines() -> Vec<Value> {
    let mut lines: Vec<Value> = (0..crowd::PODS - 1).map(crowd::line).collect();
    (lines[1]["verdict"], lines[1]["reason"]) = ("skipped".into(), "excluded_namespace".into());
    let failed = "the pod's network namespace /var/run/netns/cni-0b1c8b1e-9a52-4d9c-9f2f-0f3c1c5a7d11 cannot be entered: \
                  No such file or directory (os error 2)";
    (lines[2]["verdict"], lines[2]["reason"]) = ("failed".into(), "netns".into());
    (lines[2]["level"], lines[2]["msg"]) = ("error".into(), failed.into());
    lines.push(json!({ "level": "error", "msg": "a rule of chain ISTIO_OUTPUT is missing", "cmd": "CHECK",
        "pod": lines[3]["pod"], "uid": lines[3]["uid"], "verdict": "failed", "reason": "differs" }));
    lines
}
