//! Tests of removals if files that may name the plugin cannot be read or decoded, or have other names.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use contract::{PLUGIN_NAME, REMOVED_MARKER as STUB, STUB_STAYS};
use istio_cni::install::plan::{self, Obstacle};
use istio_cni::install::snapshot::Snapshot;
use istio_cni::install::{Scope, remove};

use super::node::{LIST, Node, has_entry, install};

/// The size of a network configuration that is not read.
const TOO_LARGE: usize = (8 << 20) + 1;

/// Installs on a node with one network.
fn installed() -> Node {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    assert!(install(&node.chained()).is_empty());
    node
}

fn removed(node: &Node) -> Vec<String> {
    let errors = remove(&node.chained(), Scope::ALL, Duration::ZERO);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(node.names("run"), [""; 0]);
    node.names("bin")
}

/// Returns the list with this member before its others.
fn with(member: &str, list: &str) -> String {
    list.replacen('{', &format!("{{{member},"), 1)
}

fn padded(list: &str) -> String {
    with(&format!("\"x\": \"{}\"", "y".repeat(TOO_LARGE)), list)
}

const FILE: &str = "10-net.conflist";

/// Changes of an installed node after which a file may name the plugin. Each returns the file's name.
const CHANGES: [fn(&Node) -> &'static str; 6] = [
    |node| write(node, FILE, &padded(&list(node))),
    |node| write(node, "10-net.conflist.cilium_bak", &padded(&list(node))),
    |node| {
        symlink("/nowhere/05-other.conflist", node.path("net/05-other.conflist")).unwrap();
        "05-other.conflist"
    },
    |node| write(node, FILE, &with("\"disableCheck\": \"maybe\"", &list(node))),
    |node| write(node, "10-net.conflist_bak", list(node).trim_end().strip_suffix('}').unwrap()),
    // The beginning of a list that its owner is writing.
    |node| {
        fs::write(node.path("net").join(FILE), "{\"cniVersion\": \"0.4.0\", \"na").unwrap();
        FILE
    },
];

fn list(node: &Node) -> String {
    node.read(&format!("net/{FILE}"))
}

fn write(node: &Node, name: &'static str, content: &str) -> &'static str {
    node.network(name, content);
    name
}

#[test]
fn a_file_that_may_name_the_plugin_leaves_a_stub_until_it_is_gone() {
    for change in CHANGES {
        let node = installed();
        let changed = change(&node);
        for _ in 0..2 {
            assert_eq!(removed(&node), [STUB, PLUGIN_NAME], "{changed}");
            assert!(node.read(&format!("bin/{STUB}")).contains(STUB_STAYS));
        }
        fs::remove_file(node.path("net").join(changed)).unwrap();
        node.network(FILE, LIST);
        assert_eq!(removed(&node), [""; 0], "{changed}");
        assert_eq!(list(&node), LIST);
    }
}

#[test]
fn files_that_cannot_name_the_plugin_leave_no_stub() {
    let node = installed();
    node.network("20-other.conflist", "{\"name\": 5, \"plugins\": [{\"type\": \"ptp\"}]}");
    node.network("30-half.conflist", "{\"cniVersion\": \"0.4.0\", \"na");
    node.network("notes.txt", "istio-cni is installed on this node");
    symlink("/nowhere", node.path("net/kubeconfig")).unwrap();
    fs::create_dir(node.path("net/10-net.conflist.d")).unwrap();
    assert_eq!(removed(&node), [""; 0]);
}

#[test]
fn the_plugin_is_removed_from_files_with_any_other_name() {
    for name in
        ["10-net.conflist_bak", "10-net.conflist-old", "10-net.conflist,v", "#10-net.conflist#", "10-net.bak", "10-net"]
    {
        let node = installed();
        fs::rename(node.path("net/10-net.conflist"), node.path("net").join(name)).unwrap();
        node.network("05-other.conflist", &LIST.replace("net", "other"));
        assert_eq!(removed(&node), [""; 0], "{name}");
        assert_eq!(node.read(&format!("net/{name}")), LIST);
    }
}

#[test]
fn a_list_that_would_be_too_large_to_be_read_again_gets_no_entry() {
    let node = Node::new();
    let full = TOO_LARGE - LIST.len() - "\"x\": \"\",".len() - 100;
    let list = with(&format!("\"x\": \"{}\"", "y".repeat(full)), LIST);
    node.network("10-net.conflist", &list);
    let plan = install(&node.chained());
    let [Obstacle::Unusable { path, reason }] = plan.obstacles.as_slice() else { panic!("{:?}", plan.obstacles) };
    assert_eq!(*path, node.path("net/10-net.conflist"));
    assert!(reason.contains("more than 8 MiB"), "{reason}");
    assert!(!has_entry(path) && Snapshot::take(&node.chained()).networks.unwrap()[0].unread.is_none());
    assert!(plan::install(&node.chained(), &Snapshot::take(&node.chained())).network.is_some());
}
