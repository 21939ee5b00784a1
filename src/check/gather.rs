//! Reads the state of a node ([`NodeFacts`]): sockets of runtimes, network configurations, SELinux, cgroups. Calls
//! `kernel` to program rules on trial.
#![expect(clippy::disallowed_methods, reason = "reads the node's files")]

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use libcni::conflist::is_read;

use super::kernel;
use super::node::{Cgroups, Directories, NodeFacts, OtherDirectory, Selinux};
use crate::install::plan::pod_network;
use crate::install::snapshot::Snapshot;
use crate::install::{InstallSettings, Located};
use crate::runtime_config;

/// Sockets of container runtimes, relative to the node's root.
const RUNTIMES: [(&str, &str); 6] = [
    ("containerd", "run/containerd/containerd.sock"),
    ("containerd of k3s", "run/k3s/containerd/containerd.sock"),
    ("containerd of k0s", "run/k0s/containerd.sock"),
    ("containerd of MicroK8s", "var/snap/microk8s/common/run/containerd.sock"),
    ("CRI-O", "run/crio/crio.sock"),
    ("cri-dockerd", "run/cri-dockerd.sock"),
];

/// Directories of network configurations: distribution, value of `global.platform`, path relative to the node's root.
const DIRECTORIES: [(&str, Option<&str>, &str); 4] = [
    ("the default", None, "etc/cni/net.d"),
    ("k3s", Some("k3s"), "var/lib/rancher/k3s/agent/etc/cni/net.d"),
    ("MicroK8s", Some("microk8s"), "var/snap/microk8s/current/args/cni-network"),
    ("Multus", Some("openshift"), "etc/cni/multus/net.d"),
];

/// The size limit of a file in `/proc` or `/sys`, in bytes; the rest is ignored.
const MAX_SIZE: u64 = 4 << 10;

/// Reads the node's state; locates directories that are `auto` first.
pub fn gather(mut settings: InstallSettings) -> NodeFacts {
    let located = Located::at_start(&mut settings);
    let (settings, root) = (&settings, settings.given.root());
    let snapshot = Snapshot::take(settings);
    let network = pod_network(settings, &snapshot);
    let named = network.iter().flat_map(|network| {
        let plugin = network.names_the_plugin.then(|| contract::PLUGIN_NAME.to_owned());
        network.others.iter().cloned().chain(plugin)
    });
    let release = text(Path::new("/proc/sys/kernel/osrelease"));
    NodeFacts {
        given: settings.given.clone(),
        kernel: kernel::probe(release, settings.entry.native_nftables),
        runtimes: runtimes(root),
        missing: named.filter(|kind| !snapshot.plugins.contains(kind)).collect(),
        network,
        bin_dir: settings.bin_dir.clone(),
        directories: directories(settings, &located),
        other_dirs: other_directories(&settings.net_dir, root),
        selinux: selinux(root),
        cgroups: cgroups(root),
    }
}

fn runtimes(root: &Path) -> Vec<&'static str> {
    let exists = |path: &str| runtime_config::resolve(root, Path::new(path)).is_ok_and(|path| path.exists());
    RUNTIMES.into_iter().filter(|(_, path)| exists(path)).map(|(name, _)| name).collect()
}

fn directories(settings: &InstallSettings, located: &Located) -> Directories {
    let InstallSettings { net_dir, bin_dir, given, .. } = settings;
    let (conf, bin) = (given.conf.directory(net_dir), given.bin.directory(bin_dir));
    let runtimes = runtime_config::compare(given.root(), conf, bin);
    let path = |dir: runtime_config::Given<'_>| dir.on_node.unwrap_or(dir.path).to_owned();
    Directories { conf: path(conf), bin: path(bin), unknown: located.unknown().cloned(), runtimes }
}

fn other_directories(checked: &Path, root: &Path) -> Vec<OtherDirectory> {
    let identity = |path: &Path| fs::canonicalize(path).ok();
    let candidates = DIRECTORIES.into_iter().filter_map(|(distribution, platform, path)| {
        let path = runtime_config::resolve(root, Path::new(path)).ok()?;
        Some(OtherDirectory { distribution, platform, path })
    });
    // In a container, the checked directory may be a separate mount below `/host`, so that its path differs from the path below `root`.
    let is_checked =
        |path: &Path| identity(path) == identity(checked) || Path::new("/host").join(relative(path, root)) == checked;
    candidates.filter(|other| holds_networks(&other.path) && !is_checked(&other.path)).collect()
}

fn relative<'a>(path: &'a Path, root: &Path) -> &'a Path {
    path.strip_prefix(root).unwrap_or(path)
}

fn holds_networks(dir: &Path) -> bool {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name().to_str().is_some_and(is_read))
}

fn selinux(root: &Path) -> Selinux {
    match text(&root.join("sys/fs/selinux/enforce")).as_str() {
        "1" => Selinux::Enforcing { context: text(Path::new("/proc/self/attr/current")) },
        _ => Selinux::Lenient,
    }
}

fn cgroups(root: &Path) -> Option<Cgroups> {
    let mount = root.join("sys/fs/cgroup");
    if mount.join("cgroup.controllers").exists() {
        return Some(Cgroups::V2);
    }
    mount.join("memory").exists().then_some(Cgroups::V1)
}

/// Reads a short file in `/proc` or `/sys`; returns an empty string if it cannot be read.
fn text(path: &Path) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_SIZE).read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    read.map(|_| text.trim_matches(['\0', '\n', ' ']).to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a directory that stands for the node's root, with these empty files.
    fn root(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        root
    }

    #[test]
    fn other_directories_are_those_with_networks() {
        const K3S: &str = "var/lib/rancher/k3s/agent/etc/cni/net.d";
        let root = root(&[
            "etc/cni/net.d/10-x.conflist",
            &format!("{K3S}/10-flannel.conflist"),
            "etc/cni/multus/net.d/README",
        ]);
        let found = |checked: &str| {
            let found = other_directories(&root.path().join(checked), root.path());
            found.into_iter().map(|other| other.distribution).collect::<Vec<_>>()
        };
        assert_eq!(found("etc/cni/net.d"), ["k3s"]);
        assert_eq!(found(K3S), ["the default"]);
        let mounted = other_directories(Path::new("/host/etc/cni/net.d"), root.path());
        assert_eq!(mounted.iter().map(|other| other.distribution).collect::<Vec<_>>(), ["k3s"]);
    }

    #[test]
    fn cgroups_and_selinux_are_read_below_the_root() {
        assert_eq!(cgroups(root(&["sys/fs/cgroup/cgroup.controllers"]).path()), Some(Cgroups::V2));
        assert_eq!(cgroups(root(&["sys/fs/cgroup/memory/tasks"]).path()), Some(Cgroups::V1));
        let empty = root(&["sys/fs/selinux/enforce"]);
        assert_eq!((cgroups(empty.path()), selinux(empty.path())), (None, Selinux::Lenient));
        fs::write(empty.path().join("sys/fs/selinux/enforce"), "1").unwrap();
        assert!(matches!(selinux(empty.path()), Selinux::Enforcing { .. }));
    }
}
