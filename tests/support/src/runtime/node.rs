//! A node: containerd with its image and its CNI chain, a directory for everything, and what is left when pods go.
//!
//! Dropping it ends all that it started and removes all that it made.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};
use istio_cni::contract;
use serde_json::Value;
use tempfile::TempDir;

use super::client::Cri;
use super::conflist::{self, Families};
use super::containerd::Containerd;
use super::netns::Netns;
use super::pod::Pod;
use super::programs::Programs;
use super::sandbox::Sandbox;
use super::{image, wait};

/// The one image: every container, the pause container too, runs a program of it.
pub const IMAGE: &str = "test.local/pod:1";

/// A running node. Fields are dropped in this order.
pub struct Node {
    containerd: Containerd,
    cgroup: Cgroup,
    dirs: AtomicU32,
    dir: TempDir,
}

impl Node {
    /// Starts containerd, with the image imported and no CNI chain loaded.
    pub fn start(programs: &Programs) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("istio-cni-node-").tempdir()?;
        let plugins = dir.path().join("bin");
        for sub in ["bin", "net.d", "logs", "leases"] {
            fs::create_dir(dir.path().join(sub))?;
        }
        for plugin in ["ptp", "host-local", "loopback"] {
            symlink(programs.cni_plugins.join(plugin), plugins.join(plugin))?;
        }
        symlink(fs::canonicalize(&programs.istio_cni)?, plugins.join(contract::PLUGIN_NAME))?;
        let archive = dir.path().join("image.tar");
        image::write(&archive, IMAGE, &programs.in_image(), &["pause"], "SIGKILL")?;
        let containerd = Containerd::start(dir.path(), IMAGE, &plugins, &programs.runc)?;
        containerd.import(&archive)?;
        let name = dir.path().file_name().context("a directory has a name")?.to_string_lossy().into_owned();
        Ok(Self { containerd, cgroup: Cgroup { name }, dirs: AtomicU32::new(0), dir })
    }

    /// The container runtime interface.
    pub fn cri(&self) -> &Cri {
        self.containerd.cri()
    }

    /// containerd's network namespace, in which the plugins run and the pods' veths end.
    pub fn netns(&self) -> &Netns {
        self.containerd.netns()
    }

    /// Ends containerd and waits for its successor; the pods live on.
    pub fn restart_containerd(&self) -> Result<()> {
        self.containerd.restart()
    }

    /// A command in containerd's namespaces, run as a plugin is run.
    pub fn command(&self, program: &Path) -> Command {
        self.containerd.command(program)
    }

    /// What containerd keeps of a sandbox's ADD: configuration and result.
    pub fn cached_add(&self, sandbox: &str) -> Result<Value> {
        let path = format!("/var/lib/cni/results/{}-{sandbox}-eth0", conflist::NAME);
        let text = fs::read_to_string(self.containerd.inside(Path::new(&path))).context(path)?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Where its files are.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where plugins are looked for: `CNI_PATH`.
    pub fn plugins(&self) -> PathBuf {
        self.dir().join("bin")
    }

    /// containerd's log.
    pub fn log(&self) -> PathBuf {
        self.dir().join("containerd.log")
    }

    /// A new directory of its own.
    pub fn new_dir(&self, prefix: &str) -> Result<PathBuf> {
        let number = self.dirs.fetch_add(1, Ordering::Relaxed);
        let dir = self.dir().join(format!("{prefix}-{number}"));
        fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
        Ok(dir)
    }

    /// Replaces the CNI chain and waits until containerd has loaded it.
    pub fn load_chain(&self, families: Families, chained: Option<&Value>) -> Result<()> {
        let text = conflist::text(families, &self.leases(), chained);
        conflist::load(self.cri(), &self.network(), &text)
    }

    /// Waits until containerd has loaded a list of which `holds` is true.
    pub fn loaded(&self, what: &str, holds: impl Fn(&str) -> bool) -> Result<()> {
        conflist::loaded(self.cri(), what, holds)
    }

    /// The directory of CNI configurations.
    pub fn networks(&self) -> PathBuf {
        self.dir().join("net.d")
    }

    /// The node's network.
    pub fn network(&self) -> PathBuf {
        self.networks().join("10-pods.conflist")
    }

    /// Makes the pod's sandbox, which is when ADD happens. Its containers are not started yet.
    pub fn run(&self, pod: &Pod) -> Result<Sandbox<'_>> {
        let config = pod.sandbox_config(&self.cgroup.name, &self.dir().join("logs").display().to_string());
        Sandbox::run(self, pod, config)
    }

    /// Opens a network namespace that containerd has made.
    pub fn open_netns(&self, path: &str) -> Result<Netns> {
        // `/var/run` is a link to the host's `/run`, seen from here.
        let path = path.strip_prefix("/var").unwrap_or(path);
        Netns::open(&self.containerd.inside(Path::new(path)))
    }

    /// What pods have left behind: sandboxes, links, network namespaces, addresses. Empty when none runs.
    pub fn leftovers(&self) -> Result<Vec<String>> {
        let sandboxes = self.cri().sandboxes()?;
        let mut left: Vec<String> = sandboxes.iter().map(|sandbox| format!("sandbox {}", sandbox.id)).collect();
        let links = self.netns().command("ip", &["-oneline", "link", "show", "type", "veth"])?;
        left.extend(links.lines().map(|line| format!("link {line}")));
        for (what, dir) in [
            ("network namespace", self.containerd.inside(Path::new("/run/netns"))),
            ("address", self.leases().join(conflist::NAME)),
        ] {
            left.extend(names(&dir).into_iter().map(|name| format!("{what} {name}")));
        }
        Ok(left)
    }

    /// Copies the logs of containerd, of the plugin and of the containers.
    pub fn save_logs(&self, to: &Path) -> Result<()> {
        let _ = fs::remove_dir_all(to);
        copy_logs(self.dir(), to)
    }

    /// Ends everything and says what is left of it, which is nothing.
    pub fn end(self) -> Vec<String> {
        let (dir, cgroup, process) = (self.dir().to_owned(), self.cgroup.name.clone(), self.containerd.proc());
        drop(self);
        let mut suspects = Cgroup::everywhere(&cgroup);
        suspects.extend([dir, process]);
        suspects.iter().filter(|path| path.exists()).map(|path| path.display().to_string()).collect()
    }

    fn leases(&self) -> PathBuf {
        self.dir().join("leases")
    }
}

/// Log files, with the directories in which they are; the containers' own file systems hold none.
fn copy_logs(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if path.is_dir() && name != "root" && name != "state" {
            copy_logs(&path, &to.join(name))?;
        } else if path.extension().is_some_and(|extension| extension == "log") {
            fs::create_dir_all(to)?;
            fs::copy(&path, to.join(name)).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// The names in a directory, without `host-local`'s own bookkeeping; a directory that is not there has none.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != "lock" && !name.starts_with("last_reserved_ip")).collect()
}

/// The control group of all pods, which the runtime makes and nobody else removes.
struct Cgroup {
    name: String,
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for dir in Self::everywhere(&self.name) {
            let _ = wait::until("the control group is gone", || remove_tree(&dir));
        }
    }
}

impl Cgroup {
    /// Its directory in the unified hierarchy, or in each hierarchy of version 1.
    fn everywhere(name: &str) -> Vec<PathBuf> {
        let root = Path::new("/sys/fs/cgroup");
        let hierarchies = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
        let dirs = std::iter::once(root.to_owned()).chain(hierarchies).map(|hierarchy| hierarchy.join(name));
        dirs.filter(|dir| dir.is_dir()).collect()
    }
}

/// Control groups are removed from the leaves on; their files are no obstacle.
pub fn remove_tree(dir: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}
