//! Tests of what remains on the node after SIGTERM, for each state of the DaemonSet.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use test_support::api::{Api, Fault};
use test_support::daemon::{Daemon, KEPT, Node, cluster, daemon_set, own_pod, until};

/// The maximum time for the exit: the default grace period of a pod.
const WITHIN: Duration = Duration::from_secs(30);

/// A change of the cluster before SIGTERM.
type Change = Box<dyn FnOnce(&Api) + Send>;

/// Starts a daemon, waits until it is ready, changes the cluster, and sends SIGTERM. Returns the parts of the installation that remain, and
/// the log.
async fn remaining_after(change: Change) -> (Vec<&'static str>, String) {
    let api = cluster().await;
    api.put(own_pod());
    let ended = tokio::task::spawn_blocking(move || {
        let node = Node::new();
        let daemon = Daemon::start(&node, &api.url());
        daemon.ready();
        assert_eq!(node.installed().len(), 5);
        change(&api);
        // If the change has created the pod `later`, waits until the daemon's watch has received it.
        let later = u16::from(api.get("pods", "shop", "later").is_some()) * 200;
        until("the change", || match node.request("later", "u2").0 {
            status if status == later || later == 0 => Ok(()),
            status => Err(status.to_string()),
        });
        let begin = Instant::now();
        let (code, log) = daemon.end();
        assert_eq!(code, Some(0), "{log}");
        assert!(begin.elapsed() < WITHIN, "{:?}: {log}", begin.elapsed());
        (node.installed(), log)
    });
    ended.await.unwrap()
}

/// Returns a change after which GET requests whose path contains `part` fail.
fn failing(part: &'static str, fault: impl FnOnce(Fault) -> Fault + Send + 'static) -> Change {
    Box::new(move |api| api.fault(fault(Fault::on("GET", part))))
}

/// Returns a change after which the API server refuses to return the DaemonSet and the daemon's pod, with this status.
fn withdrawn(code: u16) -> Change {
    Box::new(move |api| {
        ["/daemonsets/", "/pods/agent"].iter().for_each(|part| api.fault(Fault::on("GET", part).status(code)));
    })
}

/// Deletes the daemon's pod by force, which invalidates the daemon's token.
fn forced(api: &Api) {
    api.remove("pods", "istio-system", "agent");
    api.put(test_support::daemon::pod("later", "u2"));
    withdrawn(401)(api);
}

/// Returns a change that edits the DaemonSet.
fn changed(change: impl FnOnce(&mut Value)) -> Change {
    let mut daemon_set = daemon_set();
    change(&mut daemon_set);
    Box::new(move |api| drop(api.put(daemon_set)))
}

fn deleting(daemon_set: &mut Value) {
    daemon_set["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
}

fn not_selecting(daemon_set: &mut Value) {
    daemon_set["spec"]["template"]["spec"]["nodeSelector"] = json!({ "os": "windows" });
}

/// Asserts that the daemon leaves the expected parts after each change, and that its log contains the reason. The cases
/// run concurrently, because the daemons mostly wait.
async fn assert_each_leaves(expected: &[&str], cases: Vec<(&'static str, Change)>) {
    let ends: Vec<_> =
        cases.into_iter().map(|(reason, change)| (reason, tokio::spawn(remaining_after(change)))).collect();
    for (reason, end) in ends {
        let (left, log) = end.await.unwrap();
        assert!(log.contains(reason), "no {reason:?} in {log}");
        assert_eq!(left, expected, "{reason}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plugin_stays_after_an_upgrade_or_an_unknown_state() {
    const UNKNOWN: &str = "kept: the state of the DaemonSet is unknown";
    assert_each_leaves(
        &KEPT,
        vec![
            ("kept: the DaemonSet selects this node", Box::new(|_| {})),
            ("kept: the DaemonSet selects this node", failing("/nodes/n1", |fault| fault.status(403))),
            ("kept: the DaemonSet selects this node", failing("/daemonsets/", |fault| fault.status(401).times(2))),
            (
                "kept: the state of the DaemonSet is unknown (no response within",
                failing("/daemonsets/", Fault::silence),
            ),
            (UNKNOWN, failing("/daemonsets/", Fault::cut)),
            (UNKNOWN, failing("/daemonsets/", |fault| fault.status(503))),
            // The API server refuses the request while Helm replaces the roles with those in Istio's chart.
            ("kept: the DaemonSet may not be read (status 403)", failing("/daemonsets/", |f| f.status(403))),
            ("kept: the DaemonSet may not be read (status 401)", failing("/daemonsets/", |f| f.status(401))),
            ("its token with it", Box::new(forced)),
            // The API server responds with the 404 for a path that it does not serve, which does not mean that the
            // DaemonSet is deleted.
            (UNKNOWN, failing("/daemonsets/", |fault| fault.status(404))),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plugin_is_removed_if_the_daemon_set_no_longer_covers_the_node() {
    assert_each_leaves(
        &[],
        vec![
            (
                "removed: the DaemonSet is deleted",
                Box::new(|api| api.remove("daemonsets", "istio-system", "istio-cni-node")),
            ),
            ("removed: the DaemonSet is being deleted", changed(deleting)),
            ("removed: the DaemonSet no longer selects this node", changed(not_selecting)),
            (
                "removed: neither the DaemonSet nor the agent's own pod may be read any more (status 403)",
                withdrawn(403),
            ),
            (
                "removed: neither the DaemonSet nor the agent's own pod may be read any more (status 401)",
                withdrawn(401),
            ),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_incomplete_removal_is_an_error_and_no_chain_names_a_missing_plugin() {
    let api = cluster().await;
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    api.remove("daemonsets", "istio-system", "istio-cni-node");
    // The process is stopped, so that the installer makes no other pass before SIGTERM.
    daemon.signal(Signal::SIGSTOP);
    std::fs::rename(node.path("net"), node.path("not_selecting")).unwrap();
    std::fs::write(node.path("net"), "no directory").unwrap();
    daemon.signal(Signal::SIGTERM);
    daemon.signal(Signal::SIGCONT);
    let (code, log) = daemon.end();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("not removed") && log.contains("still names it"), "{log}");
    assert!(log.contains("the removal is incomplete (errors logged above: 4)"), "{log}");
    assert_eq!(node.installed(), ["kubeconfig", "plugin"], "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lookups_are_answered_during_the_shutdown_decision() {
    let api = cluster().await;
    api.put(test_support::daemon::pod("web", "u1"));
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    api.fault(Fault::on("GET", "/daemonsets/").held());
    daemon.signal(Signal::SIGTERM);
    daemon.readyz(503, "daemon: ending");
    assert_eq!(node.request("web", "u1").0, 200);
    assert_eq!(node.installed().len(), 5);
    api.heal();
    api.release();
    let (code, log) = daemon.end();
    assert_eq!(code, Some(0), "{log}");
}
