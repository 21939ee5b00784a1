//! Tests of the status page and its JSON document: what they report about a node, their size and response time, and
//! that they are off by default.

use std::time::Instant;

use report::node::{PodState, Report};
use serde_json::json;

use test_support::api::Api;
use test_support::crowd::{self, PODS};
use test_support::daemon::{Daemon, Node, cluster, pod, until};

/// The size limit of a status page with [`PODS`] pods, in bytes.
const PAGE: usize = 100_000;

fn start(node: &Node, api: &Api) -> Daemon {
    let daemon = Daemon::with_variables(node, &api.url(), &[("STATUS_PAGE", "true")]);
    daemon.ready();
    daemon
}

fn report(daemon: &Daemon) -> Report {
    let (status, body) = daemon.get("/status.json");
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// Waits until the report of the node fulfils a condition.
#[track_caller]
fn reported(daemon: &Daemon, what: &str, is: impl Fn(&Report) -> bool) -> Report {
    until(what, || match report(daemon) {
        report if is(&report) => Ok(report),
        report => Err(format!("{report:?}")),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_is_off_by_default() {
    let api = cluster().await;
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    assert_eq!((daemon.get("/status").0, daemon.get("/status.json").0), (404, 404));
    assert_eq!(daemon.get("/metrics").0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_has_verdicts_heals_repairs_and_the_chain() {
    let api = cluster().await;
    for (name, uid) in [("web", "u1"), ("db", "u2"), ("old", "u3"), ("bad", "u4")] {
        api.put(pod(name, uid));
    }
    let mut broken = pod("broken", "u5");
    broken["status"]["initContainerStatuses"] =
        json!([{ "name": "istio-validation", "restartCount": 1, "state": { "terminated": { "exitCode": 126 } } }]);
    api.put(broken);
    let node = Node::new();
    let daemon = start(&node, &api);
    let add = |pod: &str, uid: &str, verdict: &str| {
        json!({ "level": "info", "msg": "pod line", "cmd": "ADD", "pod": pod, "uid": uid, "verdict": verdict,
                "reason": "why", "backend": "iptables-nft", "elapsed_us": 1500 })
    };
    let mut failed = add("shop/bad", "u4", "failed");
    failed["level"] = "error".into();
    failed["msg"] = "no <backend>".into();
    let differs = json!({ "level": "error", "msg": "a rule is missing", "cmd": "CHECK", "pod": "shop/db", "verdict": "failed",
                          "reason": "not_redirected" });
    // The ADD of `shop/old` was for an earlier pod of the same name, so it is not reported for the current pod.
    let adds =
        [add("shop/web", "u1", "redirected"), add("shop/db", "u2", "redirected"), add("shop/old", "u0", "skipped")];
    assert_eq!(node.log(&adds), 200);
    assert_eq!(node.log(&[failed, differs]), 200);
    node.remove_entry();
    let report = reported(&daemon, "heal and repair", |report| {
        report.heals.total > 0 && report.repair.latest.iter().any(|done| done.pod == "shop/broken")
    });
    let of = |name: &str| report.pods.iter().find(|pod| pod.name == format!("shop/{name}")).unwrap();
    let verdicts = ["web", "db", "old", "bad"].map(|name| of(name).verdict);
    use PodState::{Drifted, Failed, Redirected, Unknown};
    assert_eq!(verdicts, [Redirected, Drifted, Unknown, Failed], "{report:?}");
    assert_eq!((of("web").seconds, of("web").backend.as_deref()), (Some(0.0015), Some("iptables-nft")));
    assert_eq!((of("old").added.as_deref(), of("old").reason.as_str()), (None, "not_observed"));
    assert_eq!(of("bad").problem.as_deref(), Some("no <backend>"));
    assert_eq!(of("db").problem.as_deref(), Some("a rule is missing"));
    assert!(report.active && report.node == "n1", "{report:?}");
    assert!(report.chain.as_deref().is_some_and(|chain| chain.ends_with("10-net.conflist")), "{report:?}");
    assert_eq!(report.heals.latest[0].reason, "entry_missing", "{report:?}");
    assert!(report.errors[0].text.starts_with("a rule is missing "), "{report:?}");
    let (status, summary) = daemon.get("/status.json?summary");
    let summary: Report = serde_json::from_str(&summary).unwrap();
    assert_eq!((status, summary.pods.len(), summary.lines.len(), summary.counts), (200, 0, 0, report.counts.clone()));
    let (status, page) = daemon.get("/status");
    assert_eq!(status, 200);
    assert!(page.contains("no &lt;backend&gt;") && page.contains("✗ Not all is well."), "{page}");
    // If the plugin's log level is `error`, the plugin still sends the verdict, marked `unlogged`. The agent then
    // reports the verdict and does not log it.
    let quiet = json!({ "level": "info", "msg": "pod verified", "cmd": "CHECK", "pod": "shop/db", "uid": "u2",
                        "verdict": "verified", "unlogged": true });
    assert_eq!(node.log(&[quiet]), 200);
    let report = reported(&daemon, "no drifted pod", |report| report.counts.drifted == 0);
    assert!(report.lines.iter().all(|line| !line.text.contains("verified")), "{report:?}");
    assert!(!daemon.log_text().contains("pod verified"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_250_pods_is_small_and_fast() {
    let api = cluster().await;
    crowd::create(&api);
    let node = Node::new();
    let daemon = start(&node, &api);
    assert_eq!(node.log(&(0..PODS).map(crowd::line).collect::<Vec<_>>()), 200);
    reported(&daemon, "250 programmed pods", |report| {
        report.pods.iter().filter(|pod| pod.added.is_some()).count() == PODS
    });
    let requests = (0..20).map(|_| {
        let begin = Instant::now();
        let (status, page) = daemon.get("/status");
        assert_eq!(status, 200);
        (begin.elapsed(), page.len())
    });
    let (fastest, size) = requests.min().unwrap();
    println!("a page of {PODS} pods: {size} bytes, {fastest:?} in this build");
    assert!(size < PAGE, "{size} bytes");
}

/// If the plugin reports that no backend can program rules, the agent must not be ready until the plugin finds one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_the_plugin_lacks_makes_the_agent_not_ready() {
    let api = cluster().await;
    let node = Node::new();
    let daemon = start(&node, &api);
    let why = "iptables-legacy-restore is not installed";
    let line = |more| {
        let mut line =
            json!({ "level": "error", "msg": "pods cannot be redirected", "cmd": "STATUS", "unlogged": true });
        line.as_object_mut().unwrap().extend::<serde_json::Map<_, _>>(serde_json::from_value(more).unwrap());
        assert_eq!(node.log(&[line]), 200);
    };
    line(json!({ "verdict": "failed", "reason": "no_backend", "lack": why }));
    daemon.readyz(503, &format!("backend: {why}\n"));
    assert!(daemon.get("/metrics").1.contains("istio_cni_agent_backend_available 0\n"));
    reported(&daemon, "the reason", |report| report.not_ready == [format!("backend: {why}")]);
    assert_eq!(daemon.line(why)["level"], "error");
    line(json!({ "verdict": "available", "backend": "iptables-nft" }));
    daemon.ready();
    assert!(daemon.get("/metrics").1.contains("istio_cni_agent_backend_available 1\n"));
    reported(&daemon, "no problem", |report| report.not_ready.is_empty());
}
