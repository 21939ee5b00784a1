//! Tests of finding a pod's netns by the pod's addresses, among bind-mounted namespaces and namespaces of processes.
//!
//! Each trial has its own procfs and its own directory of bind mounts, which contain only the trial's namespaces.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use libtest_mimic::Trial;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use podnet::netns::find::{Error, PodIdentity, SearchPaths, find};
use tempfile::TempDir;

use test_support::netns::{IPV6, TestNetns, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("find::bind_mount_without_any_process", &[], bind_mount_without_any_process),
        trial("find::process_without_bind_mount", &[], process_without_bind_mount),
        trial("find::all_addresses_of_both_families_must_match", &[IPV6], all_addresses_must_match),
        trial("find::each_namespace_is_entered_once", &[], each_namespace_is_entered_once),
        trial("find::the_nodes_own_netns_is_never_the_pods", &[], the_nodes_own_netns_is_never_the_pods),
        trial("find::of_two_with_the_same_address_the_pods_uid_decides", &[], uid_decides_between_two),
        trial("find::other_files_are_ignored", &[], other_files_are_ignored),
        trial("find::a_failure_is_no_mismatch", &[], a_failure_is_no_mismatch),
        trial("find::the_pods_processes_outweigh_a_failure", &[], the_pods_processes_outweigh_a_failure),
        trial("find::the_nodes_own_netns_must_be_known", &[], the_nodes_own_netns_must_be_known),
    ]
}

/// Creates a netns with these addresses.
pub(crate) fn netns(addresses: &[&str]) -> TestNetns {
    let netns = TestNetns::new();
    netns.run("ip", &["link", "add", "eth0", "type", "veth"]);
    for address in addresses {
        netns.run("ip", &["address", "add", address, "dev", "eth0"]);
    }
    netns
}

/// The simulated procfs of a node, and its directory of bind-mounted namespaces.
pub(crate) struct Node {
    dir: TempDir,
    processes: Vec<Child>,
}

impl Node {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for part in ["proc", "netns"] {
            fs::create_dir(dir.path().join(part)).unwrap();
        }
        Self { dir, processes: Vec::new() }
    }

    pub(crate) fn places(&self) -> SearchPaths {
        SearchPaths { dirs: vec![self.path("netns"), self.path("nothing")], proc: self.path("proc") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts a process in the netns, and adds it to the procfs in a container's cgroup of the pod with this UID.
    /// Runtimes write `-` as `_` in cgroup names.
    pub(crate) fn process(&mut self, netns: &TestNetns, uid: &str) {
        let mut child =
            netns.inside(|| Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        // Once the process echoes its input, it runs in the netns.
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b".").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let pid = child.id().to_string();
        self.processes.push(child);
        let proc = self.path("proc").join(&pid);
        fs::create_dir_all(proc.join("ns")).unwrap();
        symlink(format!("/proc/{pid}/ns/net"), proc.join("ns/net")).unwrap();
        let slice = uid.replace('-', "_");
        let group = format!("0::/../kubepods-burstable-pod{slice}.slice/cri-containerd-0a1b.scope\n");
        fs::write(proc.join("cgroup"), group).unwrap();
    }

    /// Bind-mounts a netns under a name, in the calling thread's mount namespace.
    fn bind(&self, name: &str, netns: &TestNetns) {
        let place = self.path("netns").join(name);
        File::create(&place).unwrap();
        let none: Option<&str> = None;
        mount(Some(&netns.path()), &place, none, MsFlags::MS_BIND, none).unwrap();
    }

    fn find(&self, addresses: &[&str]) -> Result<PathBuf, Error> {
        let ips: Vec<IpAddr> = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
        find(&self.places(), &PodIdentity { ips: &ips, uid: UID })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        // A directory with mounts cannot be removed.
        for place in fs::read_dir(self.path("netns")).unwrap() {
            let _ = umount2(&place.unwrap().path(), MntFlags::MNT_DETACH);
        }
    }
}

const UID: &str = "0b0b0b0b-1111-2222-3333-444444444444";
const OTHER: &str = "0c0c0c0c-1111-2222-3333-444444444444";

/// Runs a body in a mount namespace of its own.
fn with_own_mounts(body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let none: Option<&str> = None;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
            body();
        });
        thread.join().unwrap();
    });
}

/// Returns the inode of the netns at a path.
fn inode(path: &Path) -> u64 {
    nix::sys::stat::stat(path).unwrap().st_ino
}

fn not_found(found: Result<PathBuf, Error>) -> usize {
    match found {
        Err(Error::NotFound { examined, .. }) => examined,
        other => panic!("{other:?}"),
    }
}

fn bind_mount_without_any_process() {
    with_own_mounts(|| {
        let node = Node::new();
        node.bind("cni-1", &netns(&["10.0.0.1/24"]));
        node.bind("cni-2", &netns(&["10.0.0.2/24"]));
        assert_eq!(node.find(&["10.0.0.2"]).unwrap(), node.path("netns/cni-2"));
        assert_eq!(not_found(node.find(&["10.0.0.3"])), 2);
    });
}

fn process_without_bind_mount() {
    let mut node = Node::new();
    let (one, two) = (netns(&["10.0.0.1/24"]), netns(&["10.0.0.2/24"]));
    node.process(&one, OTHER);
    node.process(&two, UID);
    assert_eq!(inode(&node.find(&["10.0.0.2"]).unwrap()), inode(&two.path()));
    assert_eq!(not_found(node.find(&["10.0.0.3"])), 2);
}

fn all_addresses_must_match() {
    let mut node = Node::new();
    let both = netns(&["10.0.0.2/24", "fd00::2/64"]);
    node.process(&both, UID);
    assert_eq!(inode(&node.find(&["10.0.0.2", "fd00::2"]).unwrap()), inode(&both.path()));
    assert_eq!(inode(&node.find(&["fd00::2"]).unwrap()), inode(&both.path()));
    assert_eq!(not_found(node.find(&["10.0.0.2", "fd00::3"])), 1);
    assert_eq!(not_found(node.find(&["10.0.0.3", "fd00::2"])), 1);
    assert!(matches!(node.find(&[]), Err(Error::NoAddress)));
}

fn each_namespace_is_entered_once() {
    with_own_mounts(|| {
        let mut node = Node::new();
        let pod = netns(&["10.0.0.2/24"]);
        node.bind("cni-1", &pod);
        node.bind("again", &pod);
        for _ in 0..3 {
            node.process(&pod, UID);
        }
        node.process(&netns(&["10.0.0.1/24"]), OTHER);
        assert_eq!(not_found(node.find(&["10.0.0.3"])), 2, "of six names");
        assert!(node.find(&["10.0.0.2"]).unwrap().starts_with(node.path("netns")), "a mount outlives a process");
    });
}

/// Host-network pods have the addresses of the node's netns, which must never get rules.
fn the_nodes_own_netns_is_never_the_pods() {
    let mut node = Node::new();
    let host = netns(&["10.0.0.2/24"]);
    node.process(&host, UID);
    assert!(node.find(&["10.0.0.2"]).is_ok());
    // The agent sees the node's processes, of which process 1 is in the node's netns.
    fs::create_dir_all(node.path("proc/1/ns")).unwrap();
    symlink(host.path(), node.path("proc/1/ns/net")).unwrap();
    assert_eq!(not_found(node.find(&["10.0.0.2"])), 0);
    // The netns of the calling process is excluded, too.
    let mut node = Node::new();
    let pid = std::process::id().to_string();
    fs::create_dir_all(node.path("proc").join(&pid).join("ns")).unwrap();
    symlink("/proc/self/ns/net", node.path("proc").join(&pid).join("ns/net")).unwrap();
    assert_eq!(not_found(node.find(&["127.0.0.1"])), 0);
    node.process(&host, UID);
    assert!(node.find(&["10.0.0.2"]).is_ok());
}

/// Several namespaces have the pod's address: a former pod's netns remains, and another pod has assigned the address to
/// itself. The UID in a process's cgroup decides.
fn uid_decides_between_two() {
    let (mine, stale, foreign) = (netns(&["10.0.0.2/24"]), netns(&["10.0.0.2/24"]), netns(&["10.0.0.2/24"]));
    with_own_mounts(|| {
        let mut node = Node::new();
        node.bind("stale", &stale);
        node.bind("mine", &mine);
        let ambiguous = node.find(&["10.0.0.2"]);
        assert!(matches!(&ambiguous, Err(Error::Ambiguous { found, .. }) if found.len() == 2), "{ambiguous:?}");
        node.process(&foreign, OTHER);
        assert!(matches!(node.find(&["10.0.0.2"]), Err(Error::Ambiguous { .. })));
        node.process(&mine, UID);
        assert_eq!(inode(&node.find(&["10.0.0.2"]).unwrap()), inode(&mine.path()));
    });
}

fn other_files_are_ignored() {
    let mut node = Node::new();
    let pod = netns(&["10.0.0.2/24"]);
    fs::write(node.path("netns/placeholder"), "").unwrap();
    symlink("/proc/self/ns/mnt", node.path("netns/another-type")).unwrap();
    nix::unistd::mkfifo(&node.path("netns/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    symlink("/nowhere", node.path("netns/dangling")).unwrap();
    fs::create_dir(node.path("proc/4194304")).unwrap();
    node.process(&pod, UID);
    assert_eq!(inode(&node.find(&["10.0.0.2"]).unwrap()), inode(&pod.path()));
}

/// Runs a body without the right to read files of root that deny it to others.
fn unprivileged(node: &Node, body: impl FnOnce() + Send) {
    fs::set_permissions(node.dir.path(), Permissions::from_mode(0o755)).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // Applies to this thread and to those that it starts.
            nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65534));
            body();
        });
        thread.join().unwrap();
    });
}

/// Makes a path of the node unreadable without privileges.
fn lock(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap();
}

/// A candidate that cannot be examined may be the pod's netns: the only match may be a former pod's.
fn a_failure_is_no_mismatch() {
    let stale = netns(&["10.0.0.2/24"]);
    let is_unread = |node: &Node, locked: &str, wanted: &str| {
        let found = node.find(&[wanted]);
        let locked = node.path(locked);
        let is = |path: &Path, source: &io::Error| *path == locked && source.kind() == io::ErrorKind::PermissionDenied;
        assert!(matches!(&found, Err(Error::Unread { path, source }) if is(path, source)), "{wanted}: {found:?}");
    };
    with_own_mounts(|| {
        for (made, locked) in [("netns/inside", "netns"), ("proc/7", "proc")] {
            let node = Node::new();
            node.bind("stale", &stale);
            fs::write(node.path(made), "").unwrap();
            fs::set_permissions(node.path(locked), Permissions::from_mode(0o711)).unwrap();
            unprivileged(&node, || is_unread(&node, locked, "10.0.0.2"));
        }
        // A namespace that cannot be found out.
        let node = Node::new();
        node.bind("stale", &stale);
        fs::create_dir(node.path("locked")).unwrap();
        fs::write(node.path("locked/mine"), "").unwrap();
        symlink(node.path("locked/mine"), node.path("netns/mine")).unwrap();
        lock(&node.path("locked"));
        unprivileged(&node, || is_unread(&node, "netns/mine", "10.0.0.2"));
        unprivileged(&node, || is_unread(&node, "netns/mine", "10.0.0.3"));
        // A namespace that cannot be entered.
        let node = Node::new();
        node.bind("stale", &stale);
        fs::write(node.path("netns/mine"), "").unwrap();
        lock(&node.path("netns/mine"));
        unprivileged(&node, || {
            for wanted in ["10.0.0.2", "10.0.0.3"] {
                let found = node.find(&[wanted]);
                let mine = node.path("netns/mine");
                assert!(matches!(&found, Err(Error::Unexamined { path, .. }) if *path == mine), "{wanted}: {found:?}");
            }
        });
    });
}

/// The match that has a process of the pod is the pod's netns, whatever else could not be examined.
fn the_pods_processes_outweigh_a_failure() {
    let (mine, stale) = (netns(&["10.0.0.2/24"]), netns(&["10.0.0.2/24"]));
    with_own_mounts(|| {
        let mut node = Node::new();
        node.bind("stale", &stale);
        node.process(&mine, UID);
        node.process(&mine, OTHER);
        fs::write(node.path("netns/other"), "").unwrap();
        lock(&node.path("netns/other"));
        let cgroup = node.path("proc").join(node.processes[1].id().to_string()).join("cgroup");
        lock(&cgroup);
        unprivileged(&node, || assert_eq!(inode(&node.find(&["10.0.0.2"]).unwrap()), inode(&mine.path())));
        // Of the pod's processes only those remain whose cgroup cannot be read.
        fs::remove_file(node.path("netns/other")).unwrap();
        lock(&node.path("proc").join(node.processes[0].id().to_string()).join("cgroup"));
        unprivileged(&node, || {
            let found = node.find(&["10.0.0.2"]);
            assert!(matches!(&found, Err(Error::Unread { path, .. }) if path.ends_with("cgroup")), "{found:?}");
        });
    });
}

/// If the node's netns cannot be excluded, it could get the rules of a pod with the node's addresses.
fn the_nodes_own_netns_must_be_known() {
    let host = netns(&["10.0.0.2/24"]);
    let mut node = Node::new();
    node.process(&host, UID);
    fs::create_dir_all(node.path("proc/1/ns")).unwrap();
    symlink(host.path(), node.path("proc/1/ns/net")).unwrap();
    lock(&node.path("proc/1"));
    let init = node.path("proc/1/ns/net");
    with_own_mounts(|| {
        unprivileged(&node, || {
            let found = node.find(&["10.0.0.2"]);
            assert!(matches!(&found, Err(Error::Unread { path, .. }) if *path == init), "{found:?}");
        });
    });
}
