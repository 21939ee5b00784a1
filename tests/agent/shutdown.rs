//! SIGTERM: what is left on the node, by what the API server says of the DaemonSet.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use test_support::api::{Api, Fault};
use test_support::daemon::{Daemon, KEPT, Node, cluster, daemon_set, own_pod, until};

/// A pod's grace period is 30 s.
const WITHIN: Duration = Duration::from_secs(15);

/// What happens to the cluster before the daemon is to end.
type Change = Box<dyn FnOnce(&Api) + Send>;

/// Installs, changes the cluster, ends the daemon: what is left, and what it said.
async fn left(change: Change) -> (Vec<&'static str>, String) {
    let api = cluster().await;
    api.put(own_pod());
    let ended = tokio::task::spawn_blocking(move || {
        let node = Node::new();
        let daemon = Daemon::start(&node, &api.url());
        daemon.ready();
        assert_eq!(node.installed().len(), 5);
        change(&api);
        // What the watch has told of the change.
        let later = u16::from(api.get("pods", "shop", "later").is_some()) * 200;
        until("the change", || match node.ask("later", "u2").0 {
            status if status == later || later == 0 => Ok(()),
            status => Err(status.to_string()),
        });
        let begin = Instant::now();
        let (code, said) = daemon.end();
        assert_eq!(code, Some(0), "{said}");
        assert!(begin.elapsed() < WITHIN, "{:?}: {said}", begin.elapsed());
        (node.installed(), said)
    });
    ended.await.unwrap()
}

/// Requests for what has this in its path fail.
fn failing(part: &'static str, fault: impl FnOnce(Fault) -> Fault + Send + 'static) -> Change {
    Box::new(move |api| api.fault(fault(Fault::on("GET", part))))
}

/// Nothing may be asked for any more.
fn withdrawn(code: u16) -> Change {
    Box::new(move |api| {
        ["/daemonsets/", "/pods/agent"].iter().for_each(|part| api.fault(Fault::on("GET", part).status(code)));
    })
}

/// The own pod is deleted by force, and its token with it.
fn forced(api: &Api) {
    api.remove("pods", "istio-system", "agent");
    api.put(test_support::daemon::pod("later", "u2"));
    withdrawn(401)(api);
}

/// The DaemonSet is another one.
fn changed(change: impl FnOnce(&mut Value)) -> Change {
    let mut daemon_set = daemon_set();
    change(&mut daemon_set);
    Box::new(move |api| drop(api.put(daemon_set)))
}

fn going(daemon_set: &mut Value) {
    daemon_set["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
}

fn elsewhere(daemon_set: &mut Value) {
    daemon_set["spec"]["template"]["spec"]["nodeSelector"] = json!({ "os": "windows" });
}

/// None waits for another: most of their time is the daemon's patience.
async fn each_leaves(expected: &[&str], cases: Vec<(&'static str, Change)>) {
    let ends: Vec<_> = cases.into_iter().map(|(reason, change)| (reason, tokio::spawn(left(change)))).collect();
    for (reason, end) in ends {
        let (left, said) = end.await.unwrap();
        assert!(said.contains(reason), "no {reason:?} in {said}");
        assert_eq!(left, expected, "{reason}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_and_an_api_server_that_cannot_tell_leave_the_plugin() {
    const UNKNOWN: &str = "kept: nobody can say whether it is to go";
    each_leaves(
        &KEPT,
        vec![
            ("kept: the DaemonSet is there", Box::new(|_| {})),
            ("kept: the DaemonSet is there", failing("/nodes/n1", |fault| fault.status(403))),
            ("kept: the DaemonSet is there", failing("/daemonsets/", |fault| fault.status(401).times(2))),
            ("kept: nobody can say whether it is to go (no answer within", failing("/daemonsets/", Fault::silence)),
            (UNKNOWN, failing("/daemonsets/", Fault::cut)),
            (UNKNOWN, failing("/daemonsets/", |fault| fault.status(503))),
            // As while Helm replaces these roles by those of Istio's chart.
            ("kept: the DaemonSet may not be asked for (status 403)", failing("/daemonsets/", |f| f.status(403))),
            ("kept: the DaemonSet may not be asked for (status 401)", failing("/daemonsets/", |f| f.status(401))),
            ("its token with it", Box::new(forced)),
            // A path that nobody serves is not found, either.
            (UNKNOWN, failing("/daemonsets/", |fault| fault.status(404))),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_set_that_no_longer_wants_the_node_takes_all_with_it() {
    each_leaves(
        &[],
        vec![
            (
                "removed: the DaemonSet is deleted",
                Box::new(|api| api.remove("daemonsets", "istio-system", "istio-cni-node")),
            ),
            ("removed: the DaemonSet is being deleted", changed(going)),
            ("removed: the DaemonSet no longer selects this node", changed(elsewhere)),
            ("removed: neither the DaemonSet nor the own pod may be asked for any more (status 403)", withdrawn(403)),
            ("removed: neither the DaemonSet nor the own pod may be asked for any more (status 401)", withdrawn(401)),
        ],
    )
    .await;
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
async fn pods_are_answered_while_the_end_is_being_decided() {
    let api = cluster().await;
    api.put(test_support::daemon::pod("web", "u1"));
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
