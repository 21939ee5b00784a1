//! Tests which files an agent removes or leaves in its directories when it exits and its successor mounts other
//! directories of the node.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use test_support::api::Api;
use test_support::daemon::{Daemon, KEPT, LIST, Node, STANDBY, cluster, daemon_set, directories, own_pod};
use test_support::program::under_test;

/// Returns the names of the files in a directory of the node.
fn names(node: &Node, dir: &str) -> Vec<String> {
    let entries = fs::read_dir(node.path(dir)).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Creates a node that has a second network directory and a second plugin directory, `net2` and `bin2`.
fn node() -> Node {
    let node = Node::new();
    for dir in ["net2", "bin2"] {
        fs::create_dir(node.path(dir)).unwrap();
    }
    fs::write(node.path("net2/10-net.conflist"), LIST).unwrap();
    fs::write(node.path("bin2/ptp"), "").unwrap();
    node
}

/// Starts an agent and its successor, which supersedes it and has the directories `net` and `bin`. With `owned`, both
/// write a copy of the network configuration instead of editing it.
async fn moved(node: &Node, owned: bool, net: &str, bin: &str) -> (Api, Daemon, Daemon) {
    let api = cluster().await;
    let owned = format!("--istio-owned-cni-config={owned}");
    let old = Daemon::with_flags(node, &api.url(), std::slice::from_ref(&owned));
    old.ready();
    let dir = |flag: &str, dir: &str| format!("--mounted-cni-{flag}-dir={}", node.path(dir).display());
    let new = Daemon::with_flags(node, &api.url(), &[owned, dir("net", net), dir("bin", bin)]);
    new.ready();
    old.line(STANDBY);
    (api, old, new)
}

/// Ends an agent and asserts success; returns its log.
#[track_caller]
fn end(daemon: Daemon) -> String {
    let (code, log) = daemon.end();
    assert_eq!(code, Some(0), "{log}");
    log
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_in_former_directories_are_removed_once_a_successor_has_installed_the_plugin() {
    for (owned, bin) in [(true, "bin"), (false, "bin"), (true, "bin2"), (false, "bin2")] {
        let node = node();
        let (_api, old, new) = moved(&node, owned, "net2", bin).await;
        assert!(names(&node, "net").len() > 1 || fs::read_to_string(node.path("net/10-net.conflist")).unwrap() != LIST);
        let log = end(old);
        assert!(log.contains("removed from former directories"), "{log}");
        assert_eq!(names(&node, "net"), ["10-net.conflist"], "{log}");
        assert_eq!(fs::read_to_string(node.path("net/10-net.conflist")).unwrap(), LIST, "{log}");
        let former = if bin == "bin" { &["istio-cni", "ptp"][..] } else { &["ptp"] };
        assert_eq!(names(&node, "bin"), former, "{log}");
        // The old agent's exit must not change the successor's files.
        let file = if owned { "net2/02-istio-cni.conflist" } else { "net2/10-net.conflist" };
        assert!(fs::read_to_string(node.path(file)).unwrap().contains("istio-cni"), "{log}");
        assert_eq!(names(&node, bin), ["istio-cni", "ptp"], "{log}");
        assert!(node.path("run/istio-cni-kubeconfig").exists(), "{log}");
        new.ready();
        let page = new.get("/metrics").1;
        assert!(!page.contains("istio_cni_self_heals_total{"), "nothing had to be healed: {page}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_in_a_former_configuration_directory_stay_if_the_new_one_has_another_network() {
    for owned in [false, true] {
        let node = node();
        fs::remove_file(node.path("net2/10-net.conflist")).unwrap();
        let podman = LIST.replace("\"net\"", "\"podman\"");
        fs::write(node.path("net2/87-podman.conflist"), podman).unwrap();
        let (api, old, new) = moved(&node, owned, "net2", "bin2").await;
        mounts(&api, &node);
        let before = (names(&node, "net"), fs::read_to_string(node.path("net/10-net.conflist")).unwrap());
        let log = end(old);
        let warning =
            log.lines().find(|line| line.contains("kept: another agent has chained into")).unwrap_or_default();
        for part in ["podman".to_owned(), "net\\\"".to_owned(), node.path("net2").display().to_string()] {
            assert!(warning.contains(&part) && warning.to_lowercase().contains("warn"), "{part}: {log}");
        }
        warns(&node, &log);
        let after = (names(&node, "net"), fs::read_to_string(node.path("net/10-net.conflist")).unwrap());
        assert_eq!(after, before, "{log}");
        assert_eq!(names(&node, "bin"), ["istio-cni", "ptp"], "{log}");
        new.ready();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_in_a_former_directory_stays_if_the_runtime_may_search_only_that_one() {
    for (list, stays) in [(LIST.to_owned(), true), (LIST.replace("]", ", {\"type\": \"elsewhere\"}]"), false)] {
        let node = node();
        fs::write(node.path("net/10-net.conflist"), &list).unwrap();
        fs::write(node.path("bin2/elsewhere"), "").unwrap();
        let (_api, old, new) = moved(&node, false, "net", "bin2").await;
        let log = end(old);
        assert_eq!(log.contains("the runtime may search no other directory"), stays, "{log}");
        assert_eq!(node.path("bin/istio-cni").exists(), stays, "{log}");
        assert!(fs::read_to_string(node.path("net/10-net.conflist")).unwrap().contains("istio-cni"), "{log}");
        assert!(node.path("bin2/istio-cni").exists(), "{log}");
        new.ready();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_directories_under_other_paths_are_recognized() {
    let node = node();
    std::os::unix::fs::symlink(node.path("net"), node.path("net3")).unwrap();
    std::os::unix::fs::symlink(node.path("bin"), node.path("bin3")).unwrap();
    let (_api, old, _new) = moved(&node, false, "net3", "bin3").await;
    let log = old.end_superseded();
    assert!(!log.contains("has not log"), "{log}");
    assert_eq!(node.installed().len(), 5, "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_file_is_removed_if_the_successor_has_lost_its_network() {
    let node = node();
    let (api, old, new) = moved(&node, false, "net2", "bin2").await;
    fs::remove_file(node.path("net2/10-net.conflist")).unwrap();
    new.readyz(503, "has no network configuration yet");
    mounts(&api, &node);
    let log = old.end_superseded();
    assert!(log.contains("it has not installed the plugin yet"), "{log}");
    assert_eq!(node.installed().len(), 5, "{log}");
    warns(&node, &log);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_successor_files_in_former_directories_stay_and_are_named() {
    let (api, node) = (cluster().await, node());
    let old = Daemon::start(&node, &api.url());
    old.ready();
    mounts(&api, &node);
    let log = end(old);
    assert!(log.contains("kept: the DaemonSet selects this node, and another agent will follow"), "{log}");
    assert_eq!(node.installed(), KEPT, "{log}");
    warns(&node, &log);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_chain_of_a_former_agent_needs_stays_until_that_chain_is_removed() {
    for bin in ["bin", "bin2"] {
        let (api, node) = (cluster().await, node());
        api.put(own_pod());
        let old = Daemon::start(&node, &api.url());
        old.ready();
        let log = end(old);
        assert!(log.contains("kept: the DaemonSet selects this node"), "{log}");
        let dir = |flag: &str, dir: &str| format!("--mounted-cni-{flag}-dir={}", node.path(dir).display());
        let new = Daemon::with_flags(&node, &api.url(), &[dir("net", "net2"), dir("bin", bin)]);
        new.ready();
        api.remove("daemonsets", "istio-system", "istio-cni-node");
        let log = end(new);
        assert_eq!(fs::read_to_string(node.path("net2/10-net.conflist")).unwrap(), LIST, "{log}");
        assert_eq!(names(&node, "bin2"), ["ptp"], "{log}");
        assert_eq!(node.installed(), KEPT, "the former chain needs them: {log}");
        let warning = log.lines().find(|line| line.contains("istio-cni-kubeconfig stays")).unwrap_or_default();
        let former = ["net", "bin"].map(|dir| node.path(dir).display().to_string());
        assert!(former.iter().all(|dir| warning.contains(dir)), "{log}");
        assert_eq!(log.contains("istio-cni stays: an agent has chained it"), bin == "bin", "{log}");

        let uninstall =
            Command::new(under_test("install-cni")).arg("uninstall").args(directories(&node)).output().unwrap();
        assert!(uninstall.status.success(), "{uninstall:?}");
        assert_eq!((node.installed(), names(&node, "run")), (Vec::new(), Vec::new()), "{uninstall:?}");
    }
}

/// Creates the daemon's pod, which mounts `net` and `bin`, and a DaemonSet whose template mounts `net2` and `bin2`.
fn mounts(api: &Api, node: &Node) {
    let volumes = |net: &str, bin: &str| -> Value {
        let volume = |name: &str, dir: &str| json!({ "name": name, "hostPath": { "path": node.path(dir) } });
        json!([volume("cni-net-dir", net), volume("cni-bin-dir", bin)])
    };
    let (mut own, mut template) = (own_pod(), daemon_set());
    own["spec"]["volumes"] = volumes("net", "bin");
    template["spec"]["template"]["spec"]["volumes"] = volumes("net2", "bin2");
    api.put(own);
    api.put(template);
}

#[track_caller]
fn warns(node: &Node, log: &str) {
    for dir in ["net", "bin"] {
        let path = node.path(dir).display().to_string();
        let warning = log.lines().find(|line| line.contains("that agents no longer mount") && line.contains(&path));
        assert!(warning.is_some_and(|line| line.contains("install-cni uninstall")), "{dir}: {log}");
    }
}
