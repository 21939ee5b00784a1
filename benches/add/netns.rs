//! Network namespaces in the state before a runtime calls the plugin: `lo` is up, one interface has addresses.
//!
//! The bench has its own network and mount namespaces, so that the host's stay as they are.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

/// The prefix of the names of the veths' ends in the bench's netns.
const HOST_END: &str = "pod";
static MADE: AtomicUsize = AtomicUsize::new(0);
static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// Leaves the host's network and mount namespaces. Must be called before any thread is started.
pub(crate) fn isolate() -> Result<()> {
    ensure!(nix::unistd::geteuid().is_root(), "namespaces are made by root");
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?;
    let nothing = None::<&Path>;
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)?;
    // The directory of iptables-legacy's lock file.
    mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), nothing).context("tmpfs on /run")?;
    ip("link set lo up\n")
}

/// Waits until the kernel has removed all dropped namespaces: the removal uses the cores on which the next runs are
/// measured.
pub(crate) fn settle() -> Result<()> {
    until_gone()?;
    // The kernel removes namespaces in batches and in the order in which they were dropped. Once the namespace that is
    // dropped here is removed, all earlier namespaces are, too.
    drop(PodNetns::new(false)?);
    until_gone()
}

/// Waits until the kernel has removed the veths of deleted namespaces from the bench's netns.
fn until_gone() -> Result<()> {
    const TIMEOUT: Duration = Duration::from_secs(60);
    let clock = Instant::now();
    loop {
        let devices = fs::read_to_string("/proc/self/net/dev")?;
        let pods = devices.lines().filter(|line| line.trim_start().starts_with(HOST_END)).count();
        let left = pods.saturating_sub(ALIVE.load(Ordering::Relaxed));
        if left == 0 {
            return Ok(());
        }
        ensure!(clock.elapsed() < TIMEOUT, "{left} namespaces still exist after {TIMEOUT:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A pod's network namespace, removed after the drop.
pub(crate) struct PodNetns {
    file: File,
}

impl PodNetns {
    /// Creates a netns with an IPv4 address, and with an IPv6 address if `dual_stack`.
    pub(crate) fn new(dual_stack: bool) -> Result<Self> {
        let made = in_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let bench = std::process::id();
            let mut plan =
                format!("link set lo up\nlink add eth0 type veth peer name {HOST_END}{number} netns {bench}\n");
            plan.push_str("link set eth0 up\naddr add 10.222.0.3/24 dev eth0\n");
            if dual_stack {
                plan.push_str("addr add fd00:222::3/64 dev eth0 nodad\n");
            }
            ip(&plan)?;
            Ok(File::open("/proc/thread-self/ns/net")?)
        });
        let file = made.context("a netns for a run")?;
        ALIVE.fetch_add(1, Ordering::Relaxed);
        Ok(Self { file })
    }

    /// Returns the path for `CNI_NETNS`, valid as long as the value exists.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    /// Runs `visit` on a new thread in the netns. Programs that `visit` starts are in this netns, too.
    pub(crate) fn inside<T: Send>(&self, visit: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        in_thread(|| {
            self.enter()?;
            visit()
        })
    }

    /// Moves the calling thread into the netns.
    pub(crate) fn enter(&self) -> Result<()> {
        Ok(setns(&self.file, CloneFlags::CLONE_NEWNET)?)
    }
}

impl Drop for PodNetns {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs `work` on a new thread, so that a change of its namespace ends with it.
pub(crate) fn in_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| scope.spawn(work).join()).map_err(|_| anyhow!("a thread of the bench panicked"))?
}

fn ip(plan: &str) -> Result<()> {
    let mut child = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().context("ip")?;
    child.stdin.take().context("ip has no standard input")?.write_all(plan.as_bytes())?;
    ensure!(child.wait()?.success(), "ip refused: {plan}");
    Ok(())
}
