//! A containerd of our own, in network, mount and PID namespaces of its own: nothing of the host's is touched.
//!
//! All that it ever starts, shims and containers included, lives in its PID namespace, so killing that namespace's
//! first process ends everything; the kernel does the same when the tests die, however they die.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::client::Cri;
use super::netns::Netns;
use super::{signals, wait};

/// The namespaces' first process. Its `/run` and `/var/lib` are empty, and it starts containerd anew whenever that
/// has ended well, so that a restart does not end the pods.
const FIRST_PROCESS: &str = "
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
mkdir -p /run/netns /run/lock /var/lib/cni
ip link set lo up
while containerd --config \"$1\"; do :; done
";

/// What a service manager gives a service.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A running containerd.
pub struct Containerd {
    dir: PathBuf,
    unshare: Child,
    first: Pid,
    netns: Netns,
    cri: Cri,
}

impl Containerd {
    /// Starts it on the directory, into which its configuration is written, and waits until it answers.
    pub fn start(dir: &Path, sandbox_image: &str, plugins: &Path, runc: &Path) -> Result<Self> {
        signals::check()?;
        let config = dir.join("config.toml");
        fs::write(&config, configuration(dir, sandbox_image, plugins, runc))?;
        let log = File::create(dir.join("containerd.log"))?;
        let mut unshare = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--net", "--mount", "--propagation", "private"])
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", FIRST_PROCESS, "containerd"])
            .arg(&config)
            .env_clear()
            .env("PATH", PATH)
            // Ctrl-C is for us; we end it.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("setpriv")?;
        match Self::answering(dir, &mut unshare) {
            Ok((first, netns, cri)) => {
                signals::running(Some(first));
                let containerd = Self { dir: dir.to_owned(), unshare, first, netns, cri };
                signals::check().map(|()| containerd)
            }
            Err(e) => {
                let _ = unshare.kill();
                let _ = unshare.wait();
                Err(e.context(format!("containerd did not start; it said:\n{}", tail(dir))))
            }
        }
    }

    fn answering(dir: &Path, unshare: &mut Child) -> Result<(Pid, Netns, Cri)> {
        let cri = wait::until("containerd answers", || {
            if let Some(status) = unshare.try_wait()? {
                bail!("it has ended with {status}");
            }
            let cri = Cri::connect(&dir.join("containerd.sock"))?;
            cri.version().map(|_| cri)
        })?;
        let first = child_of(Pid::from_raw(i32::try_from(unshare.id())?))?;
        let netns = Netns::open(Path::new(&format!("/proc/{first}/ns/net")))?;
        Ok((first, netns, cri))
    }

    /// Its container runtime interface.
    pub fn cri(&self) -> &Cri {
        &self.cri
    }

    /// The network namespace in which it, and thus the plugins, run.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// A path of its mount namespace, seen from outside. `path` must not lead through `/var/run`, an absolute link.
    pub fn inside(&self, path: &Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.first, path.display()))
    }

    /// A command in its namespaces with nothing in the environment but PATH, as a plugin is run.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.first.to_string(), "--mount", "--net", "--pid", "--"]).arg(program);
        command.env_clear().env("PATH", PATH);
        command
    }

    /// The directory of its first process, which is gone when all others are.
    pub fn proc(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.first))
    }

    /// Ends containerd, not its pods, and waits until its successor answers; the connection finds it by itself.
    pub fn restart(&self) -> Result<()> {
        let before = child_of(self.first)?;
        kill(before, Signal::SIGTERM)?;
        wait::until("another containerd runs", || match child_of(self.first) {
            Ok(pid) if pid != before => Ok(()),
            Ok(pid) => bail!("still {pid}"),
            Err(e) => Err(e),
        })?;
        wait::until("it answers", || self.cri.version()).map(drop)
    }

    /// Imports an image archive.
    pub fn import(&self, archive: &Path) -> Result<()> {
        let output = Command::new("ctr")
            .arg("--address")
            .arg(self.dir.join("containerd.sock"))
            .args(["--namespace", "k8s.io", "images", "import"])
            .arg(archive)
            .output()
            .context("ctr")?;
        anyhow::ensure!(output.status.success(), "ctr images import: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        // unshare ends after its child, and that after all processes of the namespace.
        if kill(self.first, Signal::SIGKILL).is_err() {
            let _ = self.unshare.kill();
        }
        let _ = self.unshare.wait();
        signals::running(None);
    }
}

/// The containerd among a process's children, or its only child.
pub(super) fn child_of(parent: Pid) -> Result<Pid> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let children = fs::read_to_string(&path).context(path)?;
    let pids: Vec<i32> = children.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let is_containerd =
        |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == "containerd");
    match pids.as_slice() {
        [only] => Ok(Pid::from_raw(*only)),
        several => several
            .iter()
            .copied()
            .find(is_containerd)
            .map(Pid::from_raw)
            .with_context(|| format!("no containerd among the children of {parent}: {children:?}")),
    }
}

/// The end of its log.
fn tail(dir: &Path) -> String {
    let log = fs::read_to_string(dir.join("containerd.log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

/// `restrict_oom_score_adj` because a pause container wants a score that only CAP_SYS_RESOURCE may set.
fn configuration(dir: &Path, sandbox_image: &str, plugins: &Path, runc: &Path) -> String {
    let (dir, plugins, runc) = (dir.display(), plugins.display(), runc.display());
    format!(
        r#"version = 2
root = "{dir}/root"
state = "{dir}/state"
temp = "{dir}/tmp"
oom_score = 0
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "{dir}/containerd.sock"
[ttrpc]
  address = "{dir}/containerd.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox_image}"
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{dir}/net.d"
    max_conf_num = 1
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{runc}"
      Root = "{dir}/state/runc"
      SystemdCgroup = false
"#
    )
}
