//! Tests of the installer together with the programs that write the same directory. Each program has files of its own shape in the
//! directories of `neighbours`, whose README says where the shapes are from.
//!
//! In each mode: after an installation, our entry is in its place and nothing else has changed (install). After the program has written,
//! renamed or removed its files as it really does, the entry is in what the runtime reads (heal). A removal leaves the directory as if the
//! installer had never run (remove); for comparison, the program acts in another directory, without the installer.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use istio_cni::install::settings::{Mode, OWNED};
use istio_cni::install::{Scope, record, remove};
use libcni::conflist;
use serde_json::{Value, json};
use test_support::DEADLINE;

use super::networks::{alone, chained, listed};
use super::node::{Node, install};
use super::reconcile::Installer;

const STANDALONE: &str = "YYY-istio-cni.conf";

/// A program that writes the configuration directory.
struct Neighbour {
    /// The directory of its files.
    shape: &'static str,
    /// The file that gets the entry at first: the one that the runtime, or Multus' daemon, reads.
    network: &'static str,
    acts: Acts,
    /// The file that gets the entry after the program has acted.
    then: &'static str,
}

/// What a program does with its files when it starts again.
#[derive(Clone, Copy)]
enum Acts {
    /// It overwrites them in place.
    Overwrites,
    /// It writes other files and renames them.
    Replaces,
    /// It removes them and writes them again.
    Resets,
    /// It writes them into an empty directory, as after a reboot.
    Reboots,
    /// It sets the pod network's range in all plugins' `ipam`.
    InsertsSubnet,
    /// It writes `next`, and renames all configurations except its own.
    Excludes,
    /// It renames files by patterns, then writes `next`.
    Disables,
}

/// Names, contents and access modes of a directory's files.
type Files = BTreeMap<String, (Vec<u8>, u32)>;

/// Reads a directory, except files that a running installer or program renames meanwhile.
fn files(dir: &Path) -> Files {
    let read = |entry: fs::DirEntry| {
        let mode = entry.metadata().ok()?.permissions().mode() & 0o7777;
        Some((entry.file_name().into_string().unwrap(), (fs::read(entry.path()).ok()?, mode)))
    };
    fs::read_dir(dir).unwrap().filter_map(|entry| read(entry.unwrap())).collect()
}

/// Returns the name of the file that the runtime reads.
fn first(files: &Files) -> &str {
    files.keys().find(|name| conflist::is_read(name)).unwrap()
}

/// Returns names and contents, for the report of a failure.
fn text(files: &Files) -> BTreeMap<&str, String> {
    files.iter().map(|(name, (content, mode))| (&**name, format!("{mode:o} {}", content.escape_ascii()))).collect()
}

impl Neighbour {
    /// Returns the files of `net.d` or `next`.
    fn shapes(&self, part: &str) -> Files {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/install/neighbours");
        let dir = root.join(self.shape).join(part);
        let mut shapes = if part == "next" && !dir.exists() { Files::new() } else { files(&dir) };
        // A checkout may have any modes.
        shapes.values_mut().for_each(|(_, mode)| *mode = 0o644);
        shapes
    }

    /// Creates a node with the files of the program, and the plugins that they name.
    fn node(&self) -> Node {
        let node = Node::new();
        for part in ["net.d", "next"] {
            for (name, (content, _)) in self.shapes(part) {
                if let Ok(network) = conflist::Network::of_file(&name, &content) {
                    network.other_plugins().iter().for_each(|kind| fs::write(node.path("bin").join(kind), "").unwrap());
                }
            }
        }
        self.shapes("net.d").iter().for_each(|(name, (content, _))| create(&node.path("net").join(name), content));
        node
    }

    /// Renames all configurations except those in `next`.
    fn exclude(&self, dir: &Path) {
        let next = self.shapes("next");
        rename_with(dir, ".cilium_bak", |name| conflist::is_read(name) && !next.contains_key(name));
    }

    /// Does what the program does when it starts again.
    fn act(&self, dir: &Path) {
        let own = self.shapes("net.d");
        let paths = || own.iter().map(|(name, (content, _))| (dir.join(name), content));
        match self.acts {
            Acts::Overwrites => paths().for_each(|(path, content)| create(&path, content)),
            Acts::Replaces => paths().for_each(|(path, content)| rename_over(&path, content)),
            Acts::Resets => {
                paths().for_each(|(path, _)| remove_if_present(&path));
                paths().for_each(|(path, content)| create(&path, content));
            }
            Acts::Reboots => {
                files(dir).keys().for_each(|name| remove_if_present(&dir.join(name)));
                paths().for_each(|(path, content)| create(&path, content));
            }
            Acts::InsertsSubnet => paths().for_each(|(path, content)| insert_subnet(&path, content)),
            Acts::Excludes => {
                let next = self.shapes("next");
                next.iter().for_each(|(name, (content, _))| rename_over(&dir.join(name), content));
                self.exclude(dir);
            }
            Acts::Disables => {
                rename_with(dir, ".mk_disabled", |name| name.contains("bridge") || name.contains("podman"));
                for name in files(dir).into_keys().filter(|name| name.contains("loopback.conf")) {
                    let text = fs::read_to_string(dir.join(&name)).unwrap();
                    rename_over(&dir.join(name), text.replace("\"0.3.1\"", "\"1.0.0\"").as_bytes());
                }
                self.shapes("next").iter().for_each(|(name, (content, _))| create(&dir.join(name), content));
            }
        }
    }

    /// Returns the directory of a node on which the installer has never run, after the program has acted if `acts` is true.
    fn alone(&self, acts: bool) -> Files {
        let node = self.node();
        if acts {
            self.act(&node.path("net"));
        }
        files(&node.path("net"))
    }

    /// Returns how the directory differs from one with our entry in its place and all other files unchanged.
    fn deviation(&self, node: &Node, mode: &Mode, has_acted: bool) -> Option<String> {
        let (mut with, mut without) = (files(&node.path("net")), self.alone(has_acted));
        with.remove(record::FILE);
        let network = match mode {
            // The copy is made of the file that the runtime reads.
            Mode::Owned { .. } => first(&without).to_owned(),
            _ if has_acted => self.then.to_owned(),
            _ => self.network.to_owned(),
        };
        let network = network.as_str();
        let of_neighbour = without[network].0.clone();
        let (ours, expected) = match mode {
            Mode::Chained { .. } => {
                without.remove(network);
                let list = network.strip_suffix(".conf").map(|stem| format!("{stem}.conflist"));
                (list.unwrap_or_else(|| network.to_owned()), with_entry(network, &of_neighbour))
            }
            Mode::Owned { file, .. } => (file.clone(), with_entry(network, &of_neighbour)),
            Mode::Standalone { file } => (file.clone(), alone()),
        };
        let Some((content, _)) = with.remove(&ours) else { return Some(format!("no {ours}: {:?}", text(&with))) };
        if serde_json::from_slice::<Value>(&content).ok().as_ref() != Some(&expected) {
            return Some(format!("{ours}: {}", content.escape_ascii()));
        }
        if ours == network && !is_insertion(&of_neighbour, &content) {
            return Some(format!("foreign bytes differ: {}", content.escape_ascii()));
        }
        // No runtime reads the files that another program has renamed.
        for files in [&mut with, &mut without] {
            files.retain(|name, _| !name.ends_with("_bak") && !name.ends_with("_disabled"));
        }
        (with != without).then(|| format!("{:?} instead of {:?}", text(&with), text(&without)))
    }

    fn install(&self, mode: &Mode) {
        let node = self.node();
        let plan = install(&node.settings(mode.clone()));
        assert!(plan.is_empty(), "{plan:?}");
        assert_eq!(self.deviation(&node, mode, false), None);
    }

    async fn heal(&self, mode: &Mode) {
        let node = self.node();
        let mut installer = Installer::start(node.settings(mode.clone()));
        installer.ready().await;
        self.act(&node.path("net"));
        let start = Instant::now();
        while let Some(deviation) = self.deviation(&node, mode, true) {
            assert!(start.elapsed() < DEADLINE, "{deviation}");
            // Cilium watches the directory, and renames new configurations.
            if matches!(self.acts, Acts::Excludes) {
                self.exclude(&node.path("net"));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        installer.ready().await;
        installer.stop().await;
    }

    fn remove(&self, mode: &Mode) {
        for (acts, heals) in [(false, false), (true, false), (true, true)] {
            let node = self.node();
            let settings = node.settings(mode.clone());
            assert!(install(&settings).is_empty());
            if acts {
                self.act(&node.path("net"));
            }
            if heals {
                assert!(install(&settings).is_empty());
            }
            // `install-cni uninstall` has no flags for the mode.
            assert!(remove(&node.chained(), Scope::ALL, Duration::ZERO).is_empty());
            let (left, expected) = (files(&node.path("net")), self.alone(acts));
            assert_eq!(text(&left), text(&expected), "acts: {acts}, heals: {heals}");
            assert!(!node.path("bin/istio-cni").exists() && node.names("run").is_empty());
        }
    }
}

/// Writes a file, which the installer may remove at any time.
fn create(path: &Path, content: &[u8]) {
    let mut file = fs::File::create(path).unwrap();
    file.write_all(content).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o644)).unwrap();
}

fn rename_over(path: &Path, content: &[u8]) {
    let temporary = path.with_extension("tmp-1");
    create(&temporary, content);
    fs::rename(temporary, path).unwrap();
}

fn remove_if_present(path: &Path) {
    unless_missing(fs::remove_file(path));
}

fn unless_missing(done: io::Result<()>) {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        done => done.unwrap(),
    }
}

/// Adds a suffix to the names that are `chosen`. The installer may remove a file meanwhile.
fn rename_with(dir: &Path, suffix: &str, chosen: impl Fn(&str) -> bool) {
    for name in files(dir).into_keys().filter(|name| chosen(name) && !name.ends_with(suffix)) {
        unless_missing(fs::rename(dir.join(&name), dir.join(format!("{name}{suffix}"))));
    }
}

/// Writes the file if it is missing, and overwrites it with the range in the `ipam` of each plugin, as kube-router does. If the installer
/// converts the file before kube-router reads it, kube-router's pod restarts.
fn insert_subnet(path: &Path, content: &[u8]) {
    let read = loop {
        match fs::read(path) {
            Ok(read) => break read,
            Err(_) => rename_over(path, content),
        }
    };
    let mut value: Value = serde_json::from_slice(&read).unwrap();
    let insert = |plugin: &mut Value| {
        if let Some(ipam) = plugin.get_mut("ipam") {
            ipam["subnet"] = json!("10.244.0.0/24");
        }
    };
    match value.get_mut("plugins").and_then(Value::as_array_mut) {
        Some(plugins) => plugins.iter_mut().for_each(insert),
        None => insert(&mut value),
    }
    // Go writes the keys of a map in sorted order.
    value.sort_all_objects();
    fs::write(path, value.to_string()).unwrap();
}

/// Returns the list of a network with our entry at its end.
fn with_entry(name: &str, content: &[u8]) -> Value {
    let text = str::from_utf8(content).unwrap();
    chained(&if name.ends_with(".conf") { listed(text) } else { serde_json::from_str(text).unwrap() })
}

/// Whether `with` is `without` with bytes inserted in one place.
fn is_insertion(without: &[u8], with: &[u8]) -> bool {
    let before = without.iter().zip(with).take_while(|(a, b)| a == b).count();
    let after = without.iter().rev().zip(with.iter().rev()).take_while(|(a, b)| a == b).count();
    without.len() < with.len() && before + after >= without.len()
}

fn in_chain(_: &Neighbour) -> Mode {
    Mode::Chained { primary: None }
}

/// Returns the mode that writes a copy, which must sort before its network.
fn copy(neighbour: &Neighbour) -> Mode {
    let file = if first(&neighbour.shapes("net.d")) < OWNED { "00-istio-cni.conflist" } else { OWNED };
    Mode::Owned { primary: None, file: file.to_owned() }
}

fn standalone(_: &Neighbour) -> Mode {
    Mode::Standalone { file: STANDALONE.to_owned() }
}

macro_rules! trials {
    ($($mode:ident)*) => {$(
        mod $mode {
            #[test]
            fn install() {
                super::NEIGHBOUR.install(&super::super::$mode(&super::NEIGHBOUR));
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn heal() {
                super::NEIGHBOUR.heal(&super::super::$mode(&super::NEIGHBOUR)).await;
            }

            #[test]
            fn remove() {
                super::NEIGHBOUR.remove(&super::super::$mode(&super::NEIGHBOUR));
            }
        }
    )*};
}

macro_rules! neighbours {
    ($($name:ident: $shape:literal, $network:literal, $acts:ident => $then:literal;)*) => {$(
        mod $name {
            use super::{Acts, Neighbour};

            const NEIGHBOUR: Neighbour =
                Neighbour { shape: $shape, network: $network, acts: Acts::$acts, then: $then };

            trials! { in_chain copy standalone }
        }
    )*};
}

neighbours! {
    antrea: "antrea", "10-antrea.conflist", Resets => "10-antrea.conflist";
    aws: "aws", "10-aws.conflist", Overwrites => "10-aws.conflist";
    azure: "azure", "10-azure.conflist", Resets => "10-azure.conflist";
    bottlerocket: "bottlerocket", "10-aws.conflist", Reboots => "10-aws.conflist";
    bridge: "bridge", "10-bridge.conf", Overwrites => "10-bridge.conf";
    calico: "calico", "10-calico.conflist", Overwrites => "10-calico.conflist";
    cilium: "cilium", "05-cilium.conflist", Replaces => "05-cilium.conflist";
    cilium_exclusive: "cilium-exclusive", "10-flannel.conflist", Excludes => "05-cilium.conflist";
    cilium_exclusive_single: "cilium-exclusive-single", "10-bridge.conf", Excludes => "05-cilium.conflist";
    crio: "crio", "100-crio-bridge.conf", Replaces => "100-crio-bridge.conf";
    flannel: "flannel", "10-flannel.conflist", Overwrites => "10-flannel.conflist";
    gke: "gke", "10-gke-ptp.conflist", Replaces => "10-gke-ptp.conflist";
    k3s: "k3s", "10-flannel.conflist", Overwrites => "10-flannel.conflist";
    kindnet: "kindnet", "10-kindnet.conflist", Replaces => "10-kindnet.conflist";
    kube_router: "kube-router", "10-kuberouter.conflist", InsertsSubnet => "10-kuberouter.conflist";
    kube_router_conf: "kube-router-conf", "10-kuberouter.conf", InsertsSubnet => "10-kuberouter.conf";
    microk8s: "microk8s", "10-calico.conflist", Overwrites => "10-calico.conflist";
    minikube: "minikube", "100-crio-bridge.conf", Disables => "1-k8s.conflist";
    multus: "multus", "00-multus.conflist", Replaces => "00-multus.conflist";
    multus_conf: "multus-conf", "00-multus.conf", Replaces => "00-multus.conf";
    multus_daemon: "multus-daemon", "10-flannel.conflist", Overwrites => "10-flannel.conflist";
    ovn_kubernetes: "ovn-kubernetes", "10-ovn-kubernetes.conf", Replaces => "10-ovn-kubernetes.conf";
    rke2: "rke2", "10-canal.conflist", Overwrites => "10-canal.conflist";
    talos: "talos", "10-flannel.conflist", Overwrites => "10-flannel.conflist";
    weave: "weave", "10-weave.conflist", Resets => "10-weave.conflist";
}
