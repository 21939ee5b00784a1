//! Tests of the removal of a file that its owner writes at the same time, and of removals from only some of the
//! directories.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use istio_cni::install::files::{Error, Files};
use istio_cni::install::plan::{self, Reason};
use istio_cni::install::settings::{Mode, OWNED};
use istio_cni::install::snapshot::Snapshot;
use istio_cni::install::{Scope, remove};

use super::node::{CONF, LIST, Node, install};

/// Two versions that the owner of a network configuration writes during the removal of the file.
const VERSIONS: [&str; 2] = ["{\"owner\": 2}", "{\"owner\": 3}"];

/// Converts the configuration of a single plugin to a list in another file. The last step removes the original file.
/// During this step its owner calls `write` at the points that `owner_writes_at` names.
fn convert(owner_writes_at: &[&str], write: impl Fn(&Node, &str) + Sync) -> (Node, Result<(), Error>) {
    let node = Node::new();
    node.network("10-net.conf", CONF);
    let steps = plan::install(&node.chained(), &Snapshot::take(&node.chained())).steps;
    let (remove, others) = steps.split_last().unwrap();
    assert_eq!(remove.reason, Reason::Converted);
    others.iter().for_each(|step| Files::new().apply(&step.operation).unwrap());
    let writes = AtomicUsize::new(0);
    let before = |step: &'static str| {
        if owner_writes_at.contains(&step) {
            write(&node, VERSIONS[writes.fetch_add(1, Ordering::Relaxed)]);
        }
    };
    let done = Files::with_hook(&before).apply(&remove.operation);
    assert_eq!(writes.into_inner(), owner_writes_at.len(), "each step was reached");
    (node, done)
}

/// Replaces the owner's file atomically.
fn replace(node: &Node, version: &str) {
    fs::write(node.path("net/next"), version).unwrap();
    fs::rename(node.path("net/next"), node.path("net/10-net.conf")).unwrap();
}

#[test]
fn a_version_that_the_owner_has_just_written_is_not_removed() {
    let in_place: fn(&Node, &str) = |node, version| fs::write(node.path("net/10-net.conf"), version).unwrap();
    for write in [replace, in_place] {
        let (node, done) = convert(&["set aside"], write);
        let error = done.unwrap_err().to_string();
        assert!(error.contains("another program has just changed ") && error.contains("10-net.conf"), "{error}");
        assert_eq!(node.read("net/10-net.conf"), VERSIONS[0]);
        assert_eq!(node.names("net"), ["10-net.conf", "10-net.conflist"]);
    }
}

#[test]
fn the_newest_of_two_versions_stays() {
    let (node, done) = convert(&["set aside", "put back"], replace);
    done.unwrap_err();
    assert_eq!(node.read("net/10-net.conf"), VERSIONS[1]);
    assert_eq!(node.names("net"), ["10-net.conf", "10-net.conflist"]);
}

#[test]
fn a_file_that_the_owner_creates_after_the_comparison_stays() {
    let (node, done) = convert(&["remove"], replace);
    done.unwrap();
    assert_eq!(node.read("net/10-net.conf"), VERSIONS[0]);
    assert_eq!(node.names("net"), ["10-net.conf", "10-net.conflist"]);
}

#[test]
fn a_file_that_the_owner_removes_is_no_error() {
    let (node, done) = convert(&["set aside"], |node, _| fs::remove_file(node.path("net/10-net.conf")).unwrap());
    done.unwrap();
    assert_eq!(node.names("net"), ["10-net.conflist"]);
}

/// Installs, changes the node, and removes the installation from the plugin directory only. Returns the files left in
/// that directory.
#[track_caller]
fn left_after(change: impl FnOnce(&Node)) -> Vec<String> {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    assert!(install(&node.chained()).is_empty());
    change(&node);
    let scope = Scope { conf: false, bin: true, run: false };
    assert!(remove(&node.chained(), scope, Duration::ZERO).is_empty());
    node.names("bin")
}

#[test]
fn the_plugin_stays_unless_a_snapshot_proves_that_no_runtime_needs_it() {
    let networks = [LIST, CONF, "", "{\"cniVersion\": \"0.4.0\", \"na"];
    for content in networks {
        let left = left_after(|node| node.network("10-net.conflist", content));
        assert_eq!(left, ["istio-cni"], "{content:?}");
    }
    let unreadable = left_after(|node| fs::rename(node.path("net"), node.path("elsewhere")).unwrap());
    assert_eq!(unreadable, ["istio-cni"]);
    let elsewhere = LIST.replace("ptp", "elsewhere");
    assert_eq!(left_after(|node| node.network("10-net.conflist", &elsewhere)), [""; 0]);
}

/// Installs and removes the installation from the directories in `scope`. Returns the files left in each directory.
fn left(list: &str, scope: Scope) -> [Vec<String>; 3] {
    let node = Node::new();
    node.network("10-net.conflist", list);
    let settings = node.settings(Mode::Owned { primary: None, file: OWNED.to_owned() });
    assert!(install(&settings).is_empty());
    for dir in ["net", "bin"] {
        fs::write(node.path(dir).join(".istio-cni-stale.tmp"), "").unwrap();
    }
    assert!(remove(&settings, scope, Duration::ZERO).is_empty());
    ["net", "bin", "run"].map(|dir| node.names(dir))
}

#[test]
fn only_directories_of_the_scope_are_changed() {
    let none = Scope { conf: false, bin: false, run: false };
    let (copy, network, stale) = (OWNED, "10-net.conflist", ".istio-cni-stale.tmp");
    let (plugin, kubeconfig, record) = ("istio-cni", "istio-cni-kubeconfig", ".istio-cni.installed");
    let elsewhere = LIST.replace("]", ", {\"type\": \"elsewhere\"}]");
    for (scope, list, expected) in [
        (Scope::ALL, LIST, [&[network][..], &[], &[]]),
        (Scope { conf: true, ..none }, LIST, [&[network], &[stale, plugin], &[kubeconfig]]),
        (Scope { conf: true, bin: true, ..none }, LIST, [&[network], &[], &[kubeconfig]]),
        // The plugin is kept while a chain names it and all other plugins of the chain are in this directory, because
        // the runtime may search only this one.
        (Scope { bin: true, ..none }, LIST, [&[stale, copy, network], &[plugin], &[record, kubeconfig]]),
        (Scope { bin: true, ..none }, &elsewhere, [&[stale, copy, network], &[], &[record, kubeconfig]]),
    ] {
        assert_eq!(left(list, scope), expected.map(<[&str]>::to_vec), "{scope:?} {list}");
    }
}
