//! A test node: a container runtime with an image, a CNI chain and a directory for all files, and a check for leftovers of pods.
//!
//! Dropping the node stops all its processes and removes all its files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::client::Cri;
use super::conflist::{self, Families};
use super::engine::Engine;
use super::netns::Netns;
use super::pod::Pod;
use super::programs::Programs;
use super::sandbox::Sandbox;
use super::service::Service;
use super::{containerd, crio, image, wait};

/// The name of the node's only image. Every container, including the pause container, runs one of the image's programs.
pub const IMAGE: &str = "test.local/pod:1";

/// A running node. The order of the fields is the order of their drop.
pub struct Node {
    service: Service,
    cgroup: Cgroup,
    dirs: AtomicU32,
    dir: TempDir,
}

impl Node {
    /// Starts the runtime, imports the image, and loads no CNI chain.
    pub fn start(programs: &Programs, engine: Engine) -> Result<Self> {
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
        engine.configure(dir.path(), IMAGE, &plugins, &programs.runc)?;
        let service = Service::start(engine, dir.path())?;
        match service.engine() {
            Engine::Containerd | Engine::Containerd2(_) => {
                containerd::import(dir.path(), &archive, &service.engine().path())?;
            }
            Engine::Crio(_) => crio::import(service.command(Path::new("skopeo")), &archive, crio::STORAGE, IMAGE)?,
        }
        let name = dir.path().file_name().context("a directory has a name")?.to_string_lossy().into_owned();
        Ok(Self { service, cgroup: Cgroup { name }, dirs: AtomicU32::new(0), dir })
    }

    /// Returns the client of the CRI.
    pub fn cri(&self) -> &Cri {
        self.service.cri()
    }

    /// Returns which container runtime the node runs.
    pub fn engine(&self) -> &Engine {
        self.service.engine()
    }

    /// Returns the runtime's netns, in which the plugins run and which has one end of each pod's veth.
    pub fn netns(&self) -> &Netns {
        self.service.netns()
    }

    /// Restarts the runtime; the pods keep running.
    pub fn restart_runtime(&self) -> Result<()> {
        self.service.restart()
    }

    /// Returns a command in the runtime's namespaces, with the environment of a plugin.
    pub fn command(&self, program: &Path) -> Command {
        self.service.command(program)
    }

    /// Returns libcni's cache of a sandbox's ADD: configuration and result.
    pub fn cached_add(&self, sandbox: &str) -> Result<Value> {
        let path = format!("/var/lib/cni/results/{}-{sandbox}-eth0", conflist::NAME);
        let text = fs::read_to_string(self.service.inside(Path::new(&path))).context(path)?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Returns the node's directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the directory of the plugins, `CNI_PATH`.
    pub fn plugins(&self) -> PathBuf {
        self.dir().join("bin")
    }

    /// Creates a new directory in the node's directory.
    pub fn new_dir(&self, prefix: &str) -> Result<PathBuf> {
        let number = self.dirs.fetch_add(1, Ordering::Relaxed);
        let dir = self.dir().join(format!("{prefix}-{number}"));
        fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
        Ok(dir)
    }

    /// Replaces the CNI chain and waits until the runtime has loaded it.
    pub fn load_chain(&self, families: Families, chained: Option<&Value>) -> Result<()> {
        let text = conflist::text(families, &self.leases(), chained);
        conflist::replace(&self.network(), &text)?;
        self.loaded("the chain", |list| list == text)
    }

    /// Waits until the runtime has loaded a list that satisfies the predicate.
    pub fn loaded(&self, condition: &str, holds: impl Fn(&str) -> bool) -> Result<()> {
        self.loaded_from(&self.network(), condition, holds)
    }

    /// Waits until the runtime has loaded a list that satisfies the predicate. `file` must be the first file in the directory, which is the
    /// one that CRI-O loads.
    pub fn loaded_from(&self, file: &Path, condition: &str, holds: impl Fn(&str) -> bool) -> Result<()> {
        match self.engine() {
            Engine::Containerd | Engine::Containerd2(_) => conflist::loaded(self.cri(), condition, holds),
            Engine::Crio(_) => {
                wait::until(condition, || {
                    let text = fs::read_to_string(file)?;
                    ensure!(holds(&text), "{text}");
                    Ok(())
                })?;
                crio::synced(&self.networks(), &self.engine().log(self.dir()))
            }
        }
    }

    /// Returns the directory of CNI configurations.
    pub fn networks(&self) -> PathBuf {
        self.dir().join("net.d")
    }

    /// Returns the path of the node's CNI configuration.
    pub fn network(&self) -> PathBuf {
        self.networks().join("10-pods.conflist")
    }

    /// Creates the pod's sandbox, for which the runtime calls ADD, and starts no containers.
    pub fn run(&self, pod: &Pod) -> Result<Sandbox<'_>> {
        let config = pod.sandbox_config(&self.cgroup.name, &self.dir().join("logs").display().to_string());
        Sandbox::run(self, pod, config)
    }

    /// Opens a network namespace by the runtime's path.
    pub fn open_netns(&self, path: &str) -> Result<Netns> {
        // The absolute link `/var/run` would lead to the host's `/run`.
        let path = path.strip_prefix("/var").unwrap_or(path);
        Netns::open(&self.service.inside(Path::new(path)))
    }

    /// Returns what is left of pods: sandboxes, veth links, network namespaces and leased addresses.
    pub fn leftovers(&self) -> Result<Vec<String>> {
        let sandboxes = self.cri().sandboxes()?;
        let mut left: Vec<String> = sandboxes.iter().map(|sandbox| format!("sandbox {}", sandbox.id)).collect();
        let links = self.netns().command("ip", &["-oneline", "link", "show", "type", "veth"])?;
        left.extend(links.lines().map(|line| format!("link {line}")));
        for (kind, dir) in [
            ("network namespace", self.service.inside(Path::new("/run/netns"))),
            ("address", self.leases().join(conflist::NAME)),
        ] {
            left.extend(names(&dir).into_iter().map(|name| format!("{kind} {name}")));
        }
        Ok(left)
    }

    /// Copies the logs of the runtime, of the plugin and of the containers.
    pub fn save_logs(&self, to: &Path) -> Result<()> {
        let _ = fs::remove_dir_all(to);
        copy_logs(self.dir(), to)
    }

    /// Stops the node and returns the paths that still exist although they should have been removed.
    pub fn end(self) -> Vec<String> {
        let (dir, cgroup, process) = (self.dir().to_owned(), self.cgroup.name.clone(), self.service.proc());
        drop(self);
        let mut paths = Cgroup::directories(&cgroup);
        paths.extend([dir, process]);
        paths.iter().filter(|path| path.exists()).map(|path| path.display().to_string()).collect()
    }

    fn leases(&self) -> PathBuf {
        self.dir().join("leases")
    }
}

/// Copies log files with their directories, except from the containers' file systems.
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

/// Returns the names in a directory, without the files that `host-local` keeps there permanently; a missing directory
/// has none.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != "lock" && !name.starts_with("last_reserved_ip")).collect()
}

/// The cgroup of all pods, which the runtime creates and does not remove.
struct Cgroup {
    name: String,
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for dir in Self::directories(&self.name) {
            let _ = wait::until("the cgroup is removed", || remove_tree(&dir));
        }
    }
}

impl Cgroup {
    /// Returns the existing directories of a cgroup, in the unified hierarchy or in the version 1 hierarchies.
    fn directories(name: &str) -> Vec<PathBuf> {
        let root = Path::new("/sys/fs/cgroup");
        let hierarchies = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
        let dirs = std::iter::once(root.to_owned()).chain(hierarchies).map(|hierarchy| hierarchy.join(name));
        dirs.filter(|dir| dir.is_dir()).collect()
    }
}

/// Removes a cgroup after its children. The files in its directory need not be removed.
pub fn remove_tree(dir: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}
