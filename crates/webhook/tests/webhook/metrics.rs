//! Compares names, types and labels of the metrics, on which dashboards and alerts depend, with a file.

use std::time::Duration;

use crate::program::Program;
use crate::stage::{bundles, get};
use test_support::DEADLINE;
use test_support::api::{Api, Fault};
use test_support::client::{Connection, trusting};
use test_support::metrics::names;

const GOLDEN: &str = include_str!("../../../../tests/data/metrics-sidecar-injector.txt");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_types_and_labels_are_those_of_the_file() {
    let api = Api::start().await;
    api.fault(Fault::on("PATCH", "/mutatingwebhookconfigurations/istio-sidecar-injector").status(503).times(4));
    let anchors = tempfile::NamedTempFile::new().unwrap();
    let program = Program::of_both_injections(&api, anchors.path()).await;
    let mut connection = Connection::open(program.webhook, &trusting(&bundles(&api)[0])).await.unwrap();
    connection.review("/inject", &crate::stage::review("v1", "u", "false")).await.unwrap();
    // After these events each metric family has a sample, so that the page shows its labels.
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let page = get(program.monitoring, "/metrics").await.unwrap();
        let found = names(page.split_once("\r\n\r\n").unwrap().1);
        if found == GOLDEN {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "other than tests/data/metrics-sidecar-injector.txt:\n{found}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
