//! A file that its owner writes while it is being removed, and removals of some of the directories.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use istio_cni::install::files::{Error, Files};
use istio_cni::install::plan::{self, Reason};
use istio_cni::install::settings::{Mode, OWNED};
use istio_cni::install::snapshot::Snapshot;
use istio_cni::install::{Scope, remove};

use super::stage::{CONF, LIST, Node, install};

/// The owner's next version of its file, and the one after that.
const VERSIONS: [&str; 2] = ["{\"owner\": 2}", "{\"owner\": 3}"];

/// Converts a single plugin's file into a list, and lets the owner write at each of these steps of the file's removal.
fn convert(owner_writes_at: &[&str], write: impl Fn(&Node, &str) + Sync) -> (Node, Result<(), Error>) {
    let node = Node::new();
    node.network("10-net.conf", CONF);
    let steps = plan::install(&node.chained(), &Snapshot::take(&node.chained())).steps;
    let (remove, others) = steps.split_last().unwrap();
    assert_eq!(remove.reason, Reason::Converted);
    others.iter().for_each(|step| Files::new().perform(&step.operation).unwrap());
    let writes = AtomicUsize::new(0);
    let before = |step: &'static str| {
        if owner_writes_at.contains(&step) {
            write(&node, VERSIONS[writes.fetch_add(1, Ordering::Relaxed)]);
        }
    };
    let done = Files::observed(&before).perform(&remove.operation);
    assert_eq!(writes.into_inner(), owner_writes_at.len(), "each step was seen");
    (node, done)
}

/// As programs do that let nobody see half of a file.
fn renames(node: &Node, version: &str) {
    fs::write(node.path("net/next"), version).unwrap();
    fs::rename(node.path("net/next"), node.path("net/10-net.conf")).unwrap();
}

#[test]
fn a_version_that_the_owner_has_just_written_is_not_removed() {
    let in_place: fn(&Node, &str) = |node, version| fs::write(node.path("net/10-net.conf"), version).unwrap();
    for write in [renames, in_place] {
        let (node, done) = convert(&["set aside"], write);
        let error = done.unwrap_err().to_string();
        assert!(error.contains("another program has just changed ") && error.contains("10-net.conf"), "{error}");
        assert_eq!(node.read("net/10-net.conf"), VERSIONS[0]);
        assert_eq!(node.names("net"), ["10-net.conf", "10-net.conflist"]);
    }
}

#[test]
fn the_newest_of_two_versions_stays() {
    let (node, done) = convert(&["set aside", "put back"], renames);
    done.unwrap_err();
    assert_eq!(node.read("net/10-net.conf"), VERSIONS[1]);
    assert_eq!(node.names("net"), ["10-net.conf", "10-net.conflist"]);
}

#[test]
fn a_file_that_the_owner_makes_anew_after_the_comparison_stays() {
    let (node, done) = convert(&["remove"], renames);
    done.unwrap();
    assert_eq!(node.read("net/10-net.conf"), VERSIONS[0]);
    assert_eq!(node.names("net"), ["10-net.conf", "10-net.conflist"]);
}

#[test]
fn a_file_that_the_owner_takes_away_need_not_be_removed() {
    let (node, done) = convert(&["set aside"], |node, _| fs::remove_file(node.path("net/10-net.conf")).unwrap());
    done.unwrap();
    assert_eq!(node.names("net"), ["10-net.conflist"]);
}

/// What a removal of the plugin directory alone leaves in it, once the configuration directory has been changed so.
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
fn the_plugin_stays_where_one_look_does_not_prove_that_no_runtime_needs_it() {
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

/// What a removal of this scope leaves in each directory.
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
fn only_directories_of_the_scope_are_touched() {
    let none = Scope { conf: false, bin: false, run: false };
    let (copy, network, stale) = (OWNED, "10-net.conflist", ".istio-cni-stale.tmp");
    let (plugin, kubeconfig) = ("istio-cni", "istio-cni-kubeconfig");
    let elsewhere = LIST.replace("]", ", {\"type\": \"elsewhere\"}]");
    for (scope, list, expected) in [
        (Scope::ALL, LIST, [&[network][..], &[], &[]]),
        (Scope { conf: true, ..none }, LIST, [&[network], &[stale, plugin], &[kubeconfig]]),
        (Scope { conf: true, bin: true, ..none }, LIST, [&[network], &[], &[kubeconfig]]),
        // A runtime that searches this directory alone would find all of the chain but the plugin.
        (Scope { bin: true, ..none }, LIST, [&[stale, copy, network], &[plugin], &[kubeconfig]]),
        (Scope { bin: true, ..none }, &elsewhere, [&[stale, copy, network], &[], &[kubeconfig]]),
    ] {
        assert_eq!(left(list, scope), expected.map(<[&str]>::to_vec), "{scope:?} {list}");
    }
}
