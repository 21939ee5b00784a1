//! Tests of writing a file while its owner writes it, too.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use istio_cni::install::files::{Error, Files};
use istio_cni::install::plan;
use istio_cni::install::snapshot::Snapshot;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::node::{LIST, Node, has_entry, install, program};

/// Returns a version of the list as its owner writes it.
fn version(mtu: u32) -> String {
    LIST.replace("1500.0", &mtu.to_string())
}

/// Writes the entry into a list. Before each step of this write that `at` names, the next function in `writes` acts as the list's owner.
fn write(at: &[&str], writes: &[fn(&Node)]) -> (Node, Result<(), Error>) {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    let steps = plan::install(&node.chained(), &Snapshot::take(&node.chained())).steps;
    let (list, others): (Vec<_>, Vec<_>) =
        steps.iter().partition(|step| step.operation.path().ends_with("10-net.conflist"));
    others.iter().for_each(|step| Files::new().apply(&step.operation).unwrap());
    let done = AtomicUsize::new(0);
    let before = |step: &'static str| {
        if at.get(done.load(Ordering::Relaxed)) == Some(&step) {
            writes[done.fetch_add(1, Ordering::Relaxed)](&node);
        }
    };
    let applied = Files::with_hook(&before).apply(&list[0].operation);
    assert_eq!((list.len(), done.into_inner()), (1, at.len()), "each step was reached");
    (node, applied)
}

fn replace(node: &Node, mtu: u32) {
    fs::write(node.path("net/next"), version(mtu)).unwrap();
    fs::rename(node.path("net/next"), node.path("net/10-net.conflist")).unwrap();
}

fn assert_refused(done: Result<(), Error>, what: &str) {
    let error = done.unwrap_err().to_string();
    assert!(error.contains(&format!("another program has just {what} ")), "{error}");
    assert!(error.contains("10-net.conflist"), "{error}");
}

#[test]
fn a_version_that_the_owner_writes_after_the_comparison_is_restored() {
    let in_place: fn(&Node) = |node| fs::write(node.path("net/10-net.conflist"), version(9000)).unwrap();
    for change in [|node: &Node| replace(node, 9000), in_place] {
        let (node, done) = write(&["rename"], &[change]);
        assert_refused(done, "changed");
        assert_eq!(node.read("net/10-net.conflist"), version(9000));
        assert_eq!(node.names("net"), ["10-net.conflist"]);
        assert!(install(&node.chained()).is_empty());
        assert!(node.read("net/10-net.conflist").contains("9000") && has_entry(&node.path("net/10-net.conflist")));
    }
}

#[test]
fn of_versions_that_the_owner_writes_around_the_exchange_the_last_one_stays() {
    let writes: [fn(&Node); 3] = [|node| replace(node, 9000), |node| replace(node, 9001), |node| replace(node, 9002)];
    for (at, last) in [(&["rename", "put back"][..], 9001), (&["rename", "put back", "put back"], 9002)] {
        let (node, done) = write(at, &writes);
        assert_refused(done, "changed");
        assert_eq!(node.read("net/10-net.conflist"), version(last));
        assert_eq!(node.names("net"), ["10-net.conflist"]);
    }
}

#[test]
fn a_list_that_the_owner_removes_around_the_exchange_is_not_created_again() {
    let remove: fn(&Node) = |node| fs::remove_file(node.path("net/10-net.conflist")).unwrap();
    let (node, done) = write(&["rename"], &[remove]);
    assert_refused(done, "removed");
    assert_eq!(node.names("net"), [""; 0]);

    let (node, done) = write(&["rename", "put back"], &[|node| replace(node, 9000), remove]);
    assert_refused(done, "changed");
    assert_eq!(node.names("net"), [""; 0]);
}

/// A file that is mounted over the list prevents the installer from restoring the owner's version.
#[test]
#[ignore = "mounts a file, which requires root"]
fn a_version_that_cannot_be_restored_is_kept_under_the_name_in_the_error() {
    let pin: fn(&Node) = |node| {
        fs::write(node.path("pin"), "").unwrap();
        let (pin, list) = (node.path("pin"), node.path("net/10-net.conflist"));
        mount(Some(&pin), &list, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    };
    let (node, done) = write(&["rename", "put back"], &[|node| replace(node, 9000), pin]);
    umount2(&node.path("net/10-net.conflist"), MntFlags::MNT_DETACH).unwrap();
    let error = done.unwrap_err().to_string();
    let kept = node.names("net").into_iter().find(|name| name != "10-net.conflist").unwrap();
    assert!(error.contains(&format!("it is now {}", node.path("net").join(&kept).display())), "{error}");
    assert_eq!(node.read(&format!("net/{kept}")), version(9000));
}

/// File systems such as NFS refuse an exchange with EINVAL, which strace injects here. The installer must then use a rename.
#[test]
fn a_file_system_without_an_exchange_gets_a_rename() {
    let node = Node::new();
    node.network("10-net.conflist", LIST);
    let mut traced = Command::new("strace");
    traced.args(["--quiet=all", "--trace=renameat2", "--inject=renameat2:error=EINVAL", "--output"]);
    let status = traced
        .arg(node.path("calls"))
        .arg(program())
        .args(["install", "chained"])
        .arg(node.path(""))
        .arg("999")
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    let calls = node.read("calls");
    assert!(calls.contains("RENAME_EXCHANGE) = -1 EINVAL (Invalid argument) (INJECTED)"), "{calls}");
    assert!(has_entry(&node.path("net/10-net.conflist")));
    assert_eq!(node.names("net"), ["10-net.conflist"]);
}
