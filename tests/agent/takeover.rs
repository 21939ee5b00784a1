//! Tests of two agents on one node, as during an upgrade: takeover, standby, and takeover after a crash.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use test_support::api::{Api, Fault};
use test_support::daemon::{Daemon, KEPT, Node, STANDBY, cluster, daemon_set, pod, until};

const ANOTHER: &str = "takeover: another agent serves this node";

/// Starts a ready agent on a node and waits until it has the pod `web` in its cache.
async fn served() -> (Api, Node, Daemon) {
    let api = cluster().await;
    api.put(pod("web", "u1"));
    let node = Node::new();
    let old = Daemon::start(&node, &api.url());
    old.ready();
    (api, node, old)
}

/// Looks the pod up repeatedly during `work`; returns all responses with a status other than 200, and the number of
/// lookups.
fn refused_during(node: &Node, work: impl FnOnce()) -> (Vec<(u16, String)>, usize) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let lookups_thread = scope.spawn(|| {
            let (mut refused, mut lookups) = (Vec::new(), 0);
            while !over.load(Ordering::Relaxed) {
                let response = node.request("web", "u1");
                lookups += 1;
                if response.0 != 200 {
                    refused.push(response);
                }
            }
            (refused, lookups)
        });
        // Ends the lookups on drop, also after a failed assertion.
        let ended = End(&over);
        work();
        drop(ended);
        lookups_thread.join().unwrap()
    })
}

/// Returns the parts of the installation that were missing at any time during `work`, except the sockets.
fn missing_during(node: &Node, work: impl FnOnce()) -> Vec<&'static str> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| {
            let mut missing = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let installed = node.installed();
                missing.extend(KEPT.iter().filter(|part| !installed.contains(part)).copied());
            }
            missing
        });
        let ended = End(&over);
        work();
        drop(ended);
        reads.join().unwrap()
    })
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_keeps_the_installation_and_refuses_no_lookup() {
    let (api, node, old) = served().await;
    let (refused, lookups) = refused_during(&node, || {
        let new = Daemon::start(&node, &api.url());
        new.ready();
        old.line(STANDBY);
        assert_eq!(old.get("/readyz"), (200, "ok\n".to_owned()), "a superseded agent stays ready");
        api.remove("daemonsets", "istio-system", "istio-cni-node");
        let log = old.end_superseded();
        assert_eq!(node.installed().len(), 5, "{log}");
        assert_eq!(node.request("web", "u1").0, 200);
        api.put(daemon_set());
        let (_, log) = new.end();
        until("what an upgrade leaves", || match node.installed() {
            left if left == KEPT => Ok(()),
            left => Err(format!("{left:?} {log}")),
        });
    });
    let none = refused.iter().filter(|(status, _)| *status != 0).count();
    assert!(lookups > 1 && none == 0, "{refused:?}");
}

/// Starts a second agent that never becomes ready, and asserts that the first one stays active and ready.
async fn assert_first_stays(
    variables: &[(&'static str, &'static str)],
    corrupt: impl FnOnce(&Api, &Node),
    reason: &str,
) {
    let (api, node, old) = served().await;
    corrupt(&api, &node);
    let (refused, lookups) = refused_during(&node, || {
        let new = Daemon::with_variables(&node, &api.url(), variables);
        new.readyz(503, reason);
        new.readyz(503, ANOTHER);
        // The first agent still restores the entry.
        node.remove_entry();
        node.until_installed();
        old.ready();
        new.end_superseded();
    });
    assert!(lookups > 1 && refused.is_empty(), "{refused:?}");
    assert!(!old.log_text().contains("another agent serves"), "{}", old.log_text());
    assert_eq!((node.installed().len(), old.get("/readyz").0), (5, 200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_may_not_list_pods_does_not_take_over() {
    let reason = "agent: this node's pods have not been listed yet";
    assert_first_stays(&[], |api, _| api.fault(Fault::on("GET", "/pods").status(403)), reason).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_with_a_wrong_conf_name_does_not_take_over() {
    assert_first_stays(&[("CNI_CONF_NAME", "no-such.conflist")], |_, _| {}, "no-such.conflist does not exist yet")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_whose_image_holds_no_plugin_does_not_take_over() {
    // The second agent's image directory has no plugin.
    let (api, node, old) = served().await;
    let empty = node.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let new = Daemon::with_flags(&node, &api.url(), &[format!("--cni-bin-source-dir={}", empty.display())]);
    new.readyz(503, "the image holds no plugin");
    new.readyz(503, ANOTHER);
    assert_eq!((node.request("web", "u1").0, old.get("/readyz").0), (200, 200));
    drop(new);
    assert_eq!((node.request("web", "u1").0, node.installed().len()), (200, 5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_superseded_agent_takes_over_again_when_its_successor_is_killed() {
    let (api, node, old) = served().await;
    let new = Daemon::start(&node, &api.url());
    new.ready();
    old.line(STANDBY);
    drop(new);
    until("a response", || match node.request("web", "u1") {
        (200, _) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    old.line("the other agent is gone: this one takes over again");
    node.remove_entry();
    node.until_installed();
    old.ready();
    // The DaemonSet then starts another successor, which takes over.
    let new = Daemon::start(&node, &api.url());
    new.ready();
    old.end_superseded();
    assert_eq!((node.request("web", "u1").0, node.installed().len()), (200, 5));
}

/// If the DaemonSet of the active agent is deleted and another DaemonSet has an agent on standby, that agent must take over without a gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_whose_daemon_set_is_deleted_leaves_the_installation_to_the_one_that_stands_by() {
    let (api, node, old) = served().await;
    let new = Daemon::start(&node, &api.url());
    new.ready();
    old.line(STANDBY);
    api.remove("daemonsets", "istio-system", "istio-cni-node");
    let missing = missing_during(&node, || {
        let (refused, lookups) = refused_during(&node, || {
            new.end_superseded();
        });
        assert!(lookups > 1 && refused.is_empty(), "{refused:?}");
        old.line("the other agent ends and offers the node: this one takes over again");
        node.until_installed();
    });
    assert!(missing.is_empty(), "missing meanwhile: {missing:?}");
    // No agent takes over from the last one, so it must remove the installation.
    let (code, log) = old.end();
    assert_eq!((code, node.installed()), (Some(0), vec![]), "{log}");
}

/// A standby agent that does not respond, as on a node that is short of memory, must not prevent the removal of the plugin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_stands_by_and_is_stopped_does_not_prevent_a_removal() {
    let (api, node, old) = served().await;
    let new = Daemon::start(&node, &api.url());
    new.ready();
    old.line(STANDBY);
    api.remove("daemonsets", "istio-system", "istio-cni-node");
    old.signal(Signal::SIGSTOP);
    let (code, log) = new.end();
    assert_eq!((code, node.installed()), (Some(0), vec![]), "{log}");
    old.signal(Signal::SIGCONT);
    node.until_installed();
    assert_eq!(node.request("web", "u1").0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_agent_takes_over_at_once_when_the_other_one_dies() {
    let (api, node, old) = served().await;
    api.fault(Fault::on("GET", "/pods").status(403));
    let new = Daemon::start(&node, &api.url());
    new.readyz(503, ANOTHER);
    drop(old);
    new.line("the other agent is gone, before this one was ready");
    // The standby agent restores the entry, although it is not ready, because no other agent is running.
    node.remove_entry();
    node.until_installed();
    assert_eq!(node.request("web", "u1").0, 503);
    api.heal();
    new.ready();
    assert_eq!(node.request("web", "u1").0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_successor_stays_active() {
    let (api, node, old) = served().await;
    let new = Daemon::start(&node, &api.url());
    new.ready();
    old.line(STANDBY);
    new.signal(Signal::SIGSTOP);
    old.end_superseded();
    new.signal(Signal::SIGCONT);
    assert_eq!((node.request("web", "u1").0, node.installed().len()), (200, 5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_with_an_api_server_by_name_takes_over() {
    let (api, node, old) = served().await;
    let new = Daemon::with_variables(&node, &api.url(), &[("KUBERNETES_SERVICE_HOST", "localhost")]);
    new.ready();
    old.line(STANDBY);
    assert_eq!(node.request("web", "u1").0, 200);
}

/// An agent with a wrong setting that takes over abandoned sockets and is then superseded must not become ready.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_superseded_agent_that_was_never_ready_stays_so() {
    let (api, node, first) = served().await;
    let reason = "no-such.conflist does not exist yet";
    let wrong = Daemon::with_variables(&node, &api.url(), &[("CNI_CONF_NAME", "no-such.conflist")]);
    wrong.readyz(503, ANOTHER);
    drop(first);
    wrong.line("the other agent is gone, before this one was ready");
    wrong.line("waiting: ");
    let again = Daemon::start(&node, &api.url());
    again.ready();
    wrong.line(STANDBY);
    // Once the agent reports the standby, its installer has ended, so its status must stay the same.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(1) {
        let (status, log) = wrong.get("/readyz");
        assert!(status == 503 && log.contains(reason), "{status} {log}");
    }
    assert_eq!((again.get("/readyz").0, node.request("web", "u1").0), (200, 200));
}
