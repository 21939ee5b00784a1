//! Runs a container runtime in its own network, mount and PID namespaces, so that it does not change the host.
//!
//! Its monitors and containers are in the same PID namespace, so killing the first process of that namespace ends all of them.
//! The kernel also kills that process when the test process dies.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::client::Cri;
use super::engine::Engine;
use super::netns::Netns;
use super::{signals, wait};

/// The script that the first process of the PID namespace runs. It mounts empty file systems on `/run` and `/var/lib`,
/// without what the machine has mounted below them. It starts the runtime again whenever the runtime exits successfully,
/// so that a restart does not stop the pods.
const FIRST_PROCESS: &str = concat!(
    include_str!("detach"),
    "
detach /run /var/lib
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
mkdir -p /run/netns /run/lock /var/lib/cni
ip link set lo up
while \"$@\"; do :; done
"
);

/// A running container runtime.
pub struct Service {
    engine: Engine,
    unshare: Child,
    first: Pid,
    netns: Netns,
    cri: Cri,
}

impl Service {
    /// Starts the runtime, whose configuration is in `dir`, and waits until it responds.
    pub fn start(engine: Engine, dir: &Path) -> Result<Self> {
        signals::check()?;
        let log = File::create(engine.log(dir))?;
        let mut unshare = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--net", "--mount", "--propagation", "private"])
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", FIRST_PROCESS, engine.name()])
            .args(engine.command(dir))
            .env_clear()
            .env("PATH", engine.path())
            // In another process group, the runtime does not receive a terminal's SIGINT. The test program does, and
            // then ends the runtime.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("setpriv")?;
        match Self::wait(&engine, dir, &mut unshare) {
            Ok((first, netns, cri)) => {
                signals::running(Some(first));
                let service = Self { engine, unshare, first, netns, cri };
                signals::check().map(|()| service)
            }
            Err(e) => {
                let _ = unshare.kill();
                let _ = unshare.wait();
                Err(e.context(format!("{} did not start; its log:\n{}", engine.name(), tail(&engine.log(dir)))))
            }
        }
    }

    fn wait(engine: &Engine, dir: &Path, unshare: &mut Child) -> Result<(Pid, Netns, Cri)> {
        let cri = wait::until("the runtime responds", || {
            if let Some(status) = unshare.try_wait()? {
                bail!("{} has ended with {status}", engine.name());
            }
            let cri = Cri::connect(&engine.socket(dir))?;
            cri.version().map(|_| cri)
        })?;
        let first = child_of(Pid::from_raw(i32::try_from(unshare.id())?), engine.name())?;
        let netns = Netns::open(Path::new(&format!("/proc/{first}/ns/net")))?;
        Ok((first, netns, cri))
    }

    /// Returns the client of the runtime's CRI.
    pub fn cri(&self) -> &Cri {
        &self.cri
    }

    /// Returns the netns of the runtime and of the plugins.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Converts a path in the runtime's mount namespace to a path by which this process reaches the same file. `path`
    /// must not contain `/var/run`, which is an absolute link.
    pub fn inside(&self, path: &Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.first, path.display()))
    }

    /// Returns a command in the runtime's namespaces. `PATH` is its only environment variable, as for a CNI plugin.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.first.to_string(), "--mount", "--net", "--pid", "--"]).arg(program);
        command.env_clear().env("PATH", self.engine.path());
        command
    }

    /// Returns which container runtime this is.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the `/proc` directory of the first process of the PID namespace, which exists as long as any process of
    /// the namespace.
    pub fn proc(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.first))
    }

    /// Restarts the runtime without stopping its pods, and waits until it responds. Connections are re-established.
    pub fn restart(&self) -> Result<()> {
        let before = child_of(self.first, self.engine.name())?;
        kill(before, Signal::SIGTERM)?;
        wait::until("the runtime is restarted", || match child_of(self.first, self.engine.name()) {
            Ok(pid) if pid != before => Ok(()),
            Ok(pid) => bail!("process {pid} still runs"),
            Err(e) => Err(e),
        })?;
        wait::until("the runtime responds", || self.cri.version()).map(drop)
    }
}

impl Drop for Service {
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

/// Returns the only child process, or the one with this name if there are several.
pub(super) fn child_of(parent: Pid, name: &str) -> Result<Pid> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let children = fs::read_to_string(&path).context(path)?;
    let pids: Vec<i32> = children.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let is_named = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
    match pids.as_slice() {
        [only] => Ok(Pid::from_raw(*only)),
        several => several
            .iter()
            .copied()
            .find(is_named)
            .map(Pid::from_raw)
            .with_context(|| format!("no {name} among the children of {parent}: {children:?}")),
    }
}

/// Returns the last lines of the log.
fn tail(log: &Path) -> String {
    let log = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}
