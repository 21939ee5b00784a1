//! SIGTERM: what is left on the node, by what the API server says of the DaemonSet.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::api::{Api, Fault};
use crate::stage::{Daemon, Node, cluster, daemon_set, until};

/// A pod's grace period is 30 s.
const WITHIN: Duration = Duration::from_secs(15);
const KEPT: [&str; 3] = ["chain entry", "kubeconfig", "plugin"];

/// Installs, changes the cluster, ends the daemon: what is left, and what it said.
async fn left(change: impl FnOnce(&Api)) -> (Vec<&'static str>, String) {
    let api = cluster().await;
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    assert_eq!(node.installed().len(), 5);
    change(&api);
    let begin = Instant::now();
    let (code, said) = daemon.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(begin.elapsed() < WITHIN, "{:?}: {said}", begin.elapsed());
    (node.installed(), said)
}

#[track_caller]
fn kept((left, said): (Vec<&str>, String), reason: &str) {
    assert!(said.contains(reason), "no {reason:?} in {said}");
    assert_eq!(left, KEPT, "{said}");
}

#[track_caller]
fn removed((left, said): (Vec<&str>, String), reason: &str) {
    assert!(said.contains(reason), "no {reason:?} in {said}");
    assert_eq!(left, Vec::<&str>::new(), "{said}");
}

fn changed(change: impl FnOnce(&mut Value)) -> Value {
    let mut daemon_set = daemon_set();
    change(&mut daemon_set);
    daemon_set
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_leaves_the_plugin() {
    kept(left(|_| {}).await, "kept: the DaemonSet is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_daemon_set_takes_all_with_it() {
    let gone = left(|api| api.remove("daemonsets", "istio-system", "istio-cni-node"));
    removed(gone.await, "removed: the DaemonSet is deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_does_one_that_is_being_deleted() {
    let going = changed(|set| set["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
    removed(left(|api| drop(api.put(going))).await, "removed: the DaemonSet is being deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_does_one_that_no_longer_selects_the_node() {
    let elsewhere = changed(|set| set["spec"]["template"]["spec"]["nodeSelector"] = json!({ "os": "windows" }));
    removed(left(|api| drop(api.put(elsewhere))).await, "removed: the DaemonSet no longer selects this node");
}

/// Ends while questions about the DaemonSet fail like this.
async fn left_despite(fault: impl FnOnce(Fault) -> Fault) -> (Vec<&'static str>, String) {
    left(|api| api.fault(fault(Fault::on("GET", "/daemonsets/")))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_does_a_withdrawn_role() {
    let reason = "removed: the DaemonSet may no longer be asked for (status 403)";
    removed(left_despite(|fault| fault.status(403)).await, reason);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_passing_refusal_leaves_the_plugin() {
    kept(left_despite(|fault| fault.status(401).times(2)).await, "kept: the DaemonSet is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_api_server_leaves_the_plugin() {
    kept(left_despite(Fault::silence).await, "kept: nobody can say whether it is to go (no answer within");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_break_leave_the_plugin() {
    kept(left_despite(Fault::cut).await, "kept: nobody can say whether it is to go");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_fails_leaves_the_plugin() {
    kept(left_despite(|fault| fault.status(503)).await, "kept: nobody can say whether it is to go");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_nobody_serves_leaves_the_plugin() {
    // Not found, but not the DaemonSet.
    kept(left_despite(|fault| fault.status(404)).await, "kept: nobody can say whether it is to go");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_not_described_keeps_the_plugin() {
    kept(left(|api| api.fault(Fault::on("GET", "/nodes/n1").status(403))).await, "kept: the DaemonSet is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_that_cannot_be_complete_is_told_and_leaves_nothing_that_names_what_is_gone() {
    let api = cluster().await;
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    api.remove("daemonsets", "istio-system", "istio-cni-node");
    // Stopped, it cannot look before it is to end.
    daemon.signal(Signal::SIGSTOP);
    std::fs::rename(node.path("net"), node.path("elsewhere")).unwrap();
    std::fs::write(node.path("net"), "no directory").unwrap();
    daemon.signal(Signal::SIGTERM);
    daemon.signal(Signal::SIGCONT);
    let (code, said) = daemon.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("not removed") && said.contains("still names it"), "{said}");
    assert!(said.contains("the removal is incomplete (errors logged above: 3)"), "{said}");
    assert_eq!(node.installed(), ["kubeconfig", "plugin"], "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_old_agent_leaves_all_to_a_new_one_and_nobody_is_refused() {
    let api = cluster().await;
    api.put(crate::stage::pod("web", "u1"));
    let node = Node::new();
    let old = Daemon::start(&node, &api.url());
    old.ready();
    let new = Daemon::start(&node, &api.url());
    new.ready();
    old.readyz(503, "daemon: another agent serves this node");
    api.remove("daemonsets", "istio-system", "istio-cni-node");
    let (code, said) = old.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("kept: another agent serves this node already"), "{said}");
    assert_eq!(node.installed().len(), 5, "{said}");
    assert_eq!(node.ask("web", "u1").0, 200);
    api.put(daemon_set());
    let (_, said) = new.end();
    until("what an upgrade leaves", || match node.installed() {
        left if left == KEPT => Ok(()),
        left => Err(format!("{left:?} {said}")),
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_are_answered_while_the_end_is_being_decided() {
    let api = cluster().await;
    api.put(crate::stage::pod("web", "u1"));
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    api.fault(Fault::on("GET", "/daemonsets/").slow(Duration::from_secs(1)));
    daemon.signal(Signal::SIGTERM);
    daemon.readyz(503, "daemon: ending");
    assert_eq!(node.ask("web", "u1").0, 200);
    assert_eq!(node.installed().len(), 5);
    let (code, said) = daemon.end();
    assert_eq!(code, Some(0), "{said}");
}
