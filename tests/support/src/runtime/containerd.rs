//! Runs containerd in its own network, mount and PID namespaces, so that it does not change the host.
//!
//! Shims and containers are in the same PID namespace, so killing the first process of that namespace ends all of them.
//! The kernel also kills that process when the test process dies.

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

/// The script that the first process of the PID namespace runs. It mounts empty file systems on `/run` and `/var/lib`,
/// without what the machine has mounted below them. It starts containerd again whenever containerd exits successfully,
/// so that a restart does not stop the pods.
const FIRST_PROCESS: &str = concat!(
    include_str!("detach"),
    "
detach /run /var/lib
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
mkdir -p /run/netns /run/lock /var/lib/cni
ip link set lo up
while containerd --config \"$1\"; do :; done
"
);

/// The `PATH` of containerd, as that of a system service.
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
    /// Writes the configuration to the directory, starts containerd and waits until it responds.
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
            // In another process group, containerd does not receive a terminal's SIGINT. The test program does, and
            // then ends containerd.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("setpriv")?;
        match Self::wait(dir, &mut unshare) {
            Ok((first, netns, cri)) => {
                signals::running(Some(first));
                let containerd = Self { dir: dir.to_owned(), unshare, first, netns, cri };
                signals::check().map(|()| containerd)
            }
            Err(e) => {
                let _ = unshare.kill();
                let _ = unshare.wait();
                Err(e.context(format!("containerd did not start; its log:\n{}", tail(dir))))
            }
        }
    }

    fn wait(dir: &Path, unshare: &mut Child) -> Result<(Pid, Netns, Cri)> {
        let cri = wait::until("containerd responds", || {
            if let Some(status) = unshare.try_wait()? {
                bail!("containerd has ended with {status}");
            }
            let cri = Cri::connect(&dir.join("containerd.sock"))?;
            cri.version().map(|_| cri)
        })?;
        let first = child_of(Pid::from_raw(i32::try_from(unshare.id())?))?;
        let netns = Netns::open(Path::new(&format!("/proc/{first}/ns/net")))?;
        Ok((first, netns, cri))
    }

    /// Returns the client of containerd's CRI.
    pub fn cri(&self) -> &Cri {
        &self.cri
    }

    /// Returns the netns of containerd and of the plugins.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Converts a path in containerd's mount namespace to a path by which this process reaches the same file. `path`
    /// must not contain `/var/run`, which is an absolute link.
    pub fn inside(&self, path: &Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.first, path.display()))
    }

    /// Returns a command in containerd's namespaces. `PATH` is its only environment variable, as for a CNI plugin.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.first.to_string(), "--mount", "--net", "--pid", "--"]).arg(program);
        command.env_clear().env("PATH", PATH);
        command
    }

    /// Returns the `/proc` directory of the first process of the PID namespace, which exists as long as any process of
    /// the namespace.
    pub fn proc(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.first))
    }

    /// Restarts containerd without stopping its pods, and waits until it responds. Connections are re-established.
    pub fn restart(&self) -> Result<()> {
        let before = child_of(self.first)?;
        kill(before, Signal::SIGTERM)?;
        wait::until("containerd is restarted", || match child_of(self.first) {
            Ok(pid) if pid != before => Ok(()),
            Ok(pid) => bail!("process {pid} still runs"),
            Err(e) => Err(e),
        })?;
        wait::until("containerd responds", || self.cri.version()).map(drop)
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
        // Waits for `unshare`: it exits after its child, the first process of the namespace, which exits after all
        // other processes of the namespace.
        if kill(self.first, Signal::SIGKILL).is_err() {
            let _ = self.unshare.kill();
        }
        let _ = self.unshare.wait();
        signals::running(None);
    }
}

/// Returns the child process named containerd, or the only child.
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

/// Returns the last lines of the log.
fn tail(dir: &Path) -> String {
    let log = fs::read_to_string(dir.join("containerd.log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

/// Returns the configuration. It sets `restrict_oom_score_adj`, because pause containers require a low OOM score, which
/// cannot be set without CAP_SYS_RESOURCE.
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
