//! Tests of the repair controller in `install-cni`, which shares the agent's watch of pods and starts once the node is
//! ready.

use serde_json::{Value, json};

use test_support::api::{Api, Fault, Seen};
use test_support::daemon::{Daemon, Node, cluster, pod, until};

/// Returns a pod on this node whose validation found no redirection.
fn broken(name: &str) -> Value {
    let mut pod = pod(name, name);
    pod["metadata"]["labels"] = json!({ "app": name });
    pod["status"]["initContainerStatuses"] =
        json!([{ "name": "istio-validation", "restartCount": 1, "state": { "terminated": { "exitCode": 126 } } }]);
    pod
}

fn evicted(api: &Api) -> Vec<String> {
    let name = |path: &str| path.trim_end_matches("/eviction").rsplit('/').next().unwrap_or_default().to_owned();
    api.requests_to("POST", "/eviction").iter().map(|seen| name(&seen.path)).collect()
}

#[track_caller]
fn until_evicted(api: &Api, names: &[&str]) {
    until(&format!("evictions of {names:?}"), || match evicted(api) {
        found if found == names => Ok(()),
        found => Err(format!("{found:?}")),
    });
}

#[track_caller]
fn until_counted(daemon: &Daemon, line: &str) {
    until(line, || match daemon.get("/metrics").1 {
        page if page.lines().any(|found| found == line) => Ok(()),
        page => Err(page),
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_list_and_one_watch_of_pods_serve_the_plugin_and_repair() {
    for streaming in [true, false] {
        let api = cluster().await;
        if !streaming {
            api.fault(Fault::on("GET", "sendInitialEvents").status(422));
        }
        api.put(pod("redirected", "u1"));
        api.put(broken("listed"));
        let node = Node::new();
        let daemon = Daemon::start(&node, &api.url());
        daemon.ready();
        until_evicted(&api, &["listed"]);
        // The phase is Failed, as with the restart policy Never. Repair must handle the pod, although the agent serves no lookups of failed
        // pods.
        let mut failed = broken("failed");
        failed["status"]["phase"] = json!("Failed");
        api.put(failed);
        until_evicted(&api, &["listed", "failed"]);
        assert_eq!((node.request("redirected", "u1").0, node.request("failed", "failed").0), (200, 404));
        assert_eq!(api.watches("pods"), 1);
        let lists = api.requests().into_iter().filter(|seen| seen.method == "GET" && seen.path == "/api/v1/pods");
        let accepted = lists.filter(|seen| streaming || !seen.query.contains("sendInitialEvents")).count();
        assert_eq!(accepted, if streaming { 1 } else { 2 }, "a list and a watch, or both in one");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_is_evicted_before_the_node_is_ready() {
    let api = cluster().await;
    api.put(broken("web"));
    let node = Node::new();
    let list = node.path("net/10-net.conflist");
    std::fs::remove_file(&list).unwrap();
    let daemon = Daemon::start(&node, &api.url());
    until_counted(&daemon, "istio_cni_repair_broken_pods 1");
    let line = daemon.line("node_not_ready");
    assert_eq!((&line["decision"], &line["reason"]), (&json!("nothing"), &json!("node_not_ready")), "{line}");
    assert!(line.as_object().unwrap().values().all(|value| !value.is_null() && value != ""), "{line}");
    daemon.readyz(503, "no network configuration");
    assert_eq!(evicted(&api), Vec::<String>::new());
    node.remove_entry();
    daemon.ready();
    until_evicted(&api, &["web"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repairs_selectors_filter_the_shared_watch() {
    let api = cluster().await;
    let node = Node::new();
    let variables = [("REPAIR_LABEL_SELECTORS", "app in (a, b)"), ("REPAIR_FIELD_SELECTORS", "metadata.name!=b")];
    let daemon = Daemon::with_variables(&node, &api.url(), &variables);
    daemon.ready();
    for name in ["c", "b", "a"] {
        api.put(broken(name));
    }
    until_evicted(&api, &["a"]);
    assert_eq!(node.request("c", "c").0, 200, "lookups are served for all pods");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_the_plugin_would_skip_again_is_left_with_the_plugins_reason() {
    for mode in ["evict", "delete", "repair-or-evict"] {
        let api = cluster().await;
        let node = Node::new();
        let variables = [("EXCLUDE_NAMESPACES", "legacy,other"), ("REPAIR_MODE", mode)];
        let daemon = Daemon::with_variables(&node, &api.url(), &variables);
        daemon.ready();
        let mut excluded = broken("excluded");
        excluded["metadata"]["namespace"] = json!("legacy");
        let mut declined = broken("declined");
        declined["metadata"]["labels"]["sidecar.istio.io/inject"] = json!("false");
        [excluded, declined].into_iter().for_each(|pod| drop(api.put(pod)));
        for reason in ["excluded_namespace", "inject_declined"] {
            until_counted(&daemon, &format!("istio_cni_repair_pods_left_total{{reason=\"{reason}\"}} 1"));
        }
        let told =
            || api.requests_to("POST", "/events").into_iter().map(|seen| seen.body.to_string()).collect::<Vec<_>>();
        until("an Event of each reason", || {
            let told = told().concat();
            let meanings = ["the configuration excludes its namespace", "it declines injection"];
            if meanings.iter().all(|meaning| told.contains(meaning)) { Ok(()) } else { Err(told) }
        });
        let is_change = |seen: &Seen| !["GET", "PATCH"].contains(&seen.method.as_str()) && seen.path.contains("/pods/");
        let changes: Vec<String> = api.requests().iter().filter(|seen| is_change(seen)).map(Seen::line).collect();
        assert_eq!(changes, [""; 0], "{mode}");
    }
}
