//! Compares the names, types and labels of the agent's metrics, on which dashboards and alerts depend, with a file.

use serde_json::json;

use crate::token;
use test_support::api::Fault;
use test_support::daemon::{Daemon, Node, cluster, pod, until};
use test_support::metrics::names;

const GOLDEN: &str = include_str!("../data/metrics-install-cni.txt");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_types_and_labels_equal_the_file() {
    let api = cluster().await;
    let mut broken = pod("web", "u1");
    broken["status"]["initContainerStatuses"] =
        json!([{ "name": "istio-validation", "restartCount": 1, "state": { "terminated": { "exitCode": 126 } } }]);
    api.put(broken.clone());
    broken["metadata"]["name"] = json!("alone");
    broken["metadata"]["uid"] = json!("u3");
    broken["metadata"]["ownerReferences"] = json!([]);
    api.put(broken);
    api.put(pod("db", "u2"));
    api.put(token::account(3600));
    api.fault(Fault::on("POST", token::PATH).status(503).times(1));
    let node = Node::new();
    let daemon = Daemon::with_variables(&node, &api.url(), &token::VARIABLES);
    daemon.ready();
    assert_eq!(node.request("db", "u2").0, 200);
    let line = json!({ "level": "info", "msg": "m", "cmd": "ADD", "verdict": "redirected", "change": "created", "elapsed_us": 9 });
    assert_eq!(node.log(&[line]), 200);
    node.remove_entry();
    // After these events each metric family has a sample, so that the page shows its labels.
    until("the same names as tests/data/metrics-install-cni.txt", || match names(&daemon.get("/metrics").1) {
        found if found == GOLDEN => Ok(()),
        found => Err(found),
    });
}
