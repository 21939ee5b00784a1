//! Tests of removing a file while its owner writes it, and of removals from only some of the directories.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use contract::{PLUGIN_NAME, REMOVED_MARKER as STUB};
use istio_cni::install::files::{Error, Files};
use istio_cni::install::plan::{self, Reason};
use istio_cni::install::settings::{Mode, OWNED};
use istio_cni::install::snapshot::Snapshot;
use istio_cni::install::{Scope, remove};
use serde_json::{Value, json};

use super::node::{CONF, LIST, Node, has_entry, install};

/// Two versions that the owner of a network configuration writes during the removal of the file.
const VERSIONS: [&str; 2] = ["{\"owner\": 2}", "{\"owner\": 3}"];

/// Converts the configuration of a single plugin to a list in another file. The last step removes the original file. During this step
/// `write` acts as the file's owner, at the points that `owner_writes_at` names.
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
fn a_file_that_the_owner_removes_is_not_an_error() {
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

/// Returns the cached attachment of a container, as libcni writes it.
fn cached(plugins: &[&str]) -> String {
    let plugins: Vec<_> = plugins.iter().map(|kind| json!({ "type": kind })).collect();
    let config = STANDARD.encode(json!({ "name": "net", "plugins": plugins }).to_string());
    json!({ "kind": "cniCacheV1", "containerId": "a", "config": config, "ifName": "eth0" }).to_string()
}

/// Installs, changes the runtime's cache, and removes the installation. Returns the node and its plugin directory's files.
fn removed_with(change: impl FnOnce(&Path)) -> (Node, Vec<String>) {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    assert!(install(&node.chained()).is_empty());
    change(&node.path("cache"));
    assert!(remove(&node.chained(), Scope::ALL, Duration::ZERO).is_empty());
    let files = node.names("bin");
    (node, files)
}

fn cache_one(cache: &Path, plugins: &[&str]) {
    fs::create_dir_all(cache.join("results")).unwrap();
    fs::write(cache.join("results/net-a-eth0"), cached(plugins)).unwrap();
}

#[test]
fn a_removal_takes_the_plugin_out_of_cached_chains() {
    let (node, files) = removed_with(|cache| cache_one(cache, &["ptp", "istio-cni"]));
    assert_eq!(files, [""; 0]);
    let entry: Value = serde_json::from_str(&node.read("cache/results/net-a-eth0")).unwrap();
    let chain: Value = serde_json::from_slice(&STANDARD.decode(entry["config"].as_str().unwrap()).unwrap()).unwrap();
    assert_eq!(chain, json!({ "name": "net", "plugins": [{ "type": "ptp" }] }));
}

#[test]
fn a_plugin_that_cached_chains_may_name_stays_as_a_stub_until_it_can_be_removed() {
    let missing: fn(&Path) = |cache| fs::remove_dir(cache).unwrap();
    for change in [missing, |cache| cache_one(cache, &["istio-cni"])] {
        let (node, files) = removed_with(change);
        assert_eq!((files, node.names("run")), (vec![STUB.to_owned(), PLUGIN_NAME.to_owned()], vec![]));
        // A stub must not be treated as an earlier installation.
        fs::remove_file(node.path("account/token")).unwrap();
        let plan = plan::install(&node.chained(), &Snapshot::take(&node.chained()));
        assert!(!plan.was_installed && plan.steps.is_empty(), "{plan:?}");
        fs::write(node.path("account/token"), "token-2").unwrap();
        assert!(install(&node.chained()).is_empty());
        assert_eq!(node.names("bin"), [PLUGIN_NAME]);
        for _ in 0..2 {
            assert!(remove(&node.chained(), Scope::ALL, Duration::ZERO).is_empty());
            assert_eq!(node.names("bin"), [STUB, PLUGIN_NAME]);
        }
        fs::create_dir_all(node.path("cache/results")).unwrap();
        cache_one(&node.path("cache"), &["ptp"]);
        assert!(remove(&node.chained(), Scope::ALL, Duration::ZERO).is_empty());
        assert_eq!(node.names("bin"), [""; 0]);
    }
}

/// Removes an installation while pods start: at each of these times after the removal of the entry, in units of `PERIOD`, the runtime
/// caches the former chain for a pod. Returns the cached chains that still have the entry, and the plugin directory's files.
fn removed_while_pods_start(at: &'static [f64]) -> (Vec<String>, Vec<String>) {
    const PERIOD: Duration = Duration::from_millis(300);
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    assert!(install(&node.chained()).is_empty());
    let (list, cache) = (node.path("net/10-net.conflist"), node.path("cache"));
    let runtime = std::thread::spawn(move || {
        while has_entry(&list) {
            std::thread::yield_now();
        }
        let removed = Instant::now();
        fs::create_dir_all(cache.join("results")).unwrap();
        for (number, period) in at.iter().enumerate() {
            std::thread::sleep(PERIOD.mul_f64(*period).saturating_sub(removed.elapsed()));
            fs::write(cache.join(format!("results/net-{number}-eth0")), cached(&["ptp", "istio-cni"])).unwrap();
        }
    });
    assert!(remove(&node.chained(), Scope::ALL, PERIOD).is_empty());
    runtime.join().unwrap();
    let entries = node.names("cache/results").into_iter().map(|name| node.read(&format!("cache/results/{name}")));
    (entries.filter(|entry| *entry == cached(&["ptp", "istio-cni"])).collect(), node.names("bin"))
}

#[test]
fn a_removal_waits_for_pods_that_are_starting() {
    assert_eq!(removed_while_pods_start(&[0.5, 1.6, 2.5]), (vec![], vec![]));
    let (_, files) = removed_while_pods_start(&[2.5, 3.5]);
    assert_eq!(files, [STUB, PLUGIN_NAME], "another pod may follow");
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
        // The plugin is kept while a chain names it and all other plugins of the chain are in the plugin directory, because the runtime may
        // search only this directory.
        (Scope { bin: true, ..none }, LIST, [&[stale, copy, network], &[plugin], &[record, kubeconfig]]),
        (Scope { bin: true, ..none }, &elsewhere, [&[stale, copy, network], &[], &[record, kubeconfig]]),
    ] {
        assert_eq!(left(list, scope), expected.map(<[&str]>::to_vec), "{scope:?} {list}");
    }
}
