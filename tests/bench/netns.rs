//! Network namespaces as a runtime leaves them before the plugin is called: `lo` up, one interface, its addresses.
//!
//! The bench works in a network and a mount namespace of its own, so that nothing of the machine is touched.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

/// Leaves the machine's network and mounts. To be called before any thread is started.
pub(crate) fn isolate() -> Result<()> {
    ensure!(nix::unistd::geteuid().is_root(), "namespaces are made by root");
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?;
    let nothing = None::<&Path>;
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)?;
    // iptables-legacy's lock file is there.
    mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), nothing).context("tmpfs on /run")?;
    ip("link set lo up\n")
}

/// A pod's network namespace; it ends with the value.
pub(crate) struct PodNetns {
    file: File,
}

impl PodNetns {
    /// With an IPv4 address, and an IPv6 address where the pod is dual stack.
    pub(crate) fn new(dual_stack: bool) -> Result<Self> {
        let made = in_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            let mut plan = String::from("link set lo up\nlink add eth0 type veth peer name host0\nlink set eth0 up\n");
            plan.push_str("link set host0 up\naddr add 10.222.0.3/24 dev eth0\n");
            if dual_stack {
                plan.push_str("addr add fd00:222::3/64 dev eth0 nodad\n");
            }
            ip(&plan)?;
            Ok(File::open("/proc/thread-self/ns/net")?)
        });
        Ok(Self { file: made.context("a netns for a run")? })
    }

    /// `CNI_NETNS`; good as long as the value lives.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    /// Runs `visit` inside; programs that it starts are inside too.
    pub(crate) fn inside<T: Send>(&self, visit: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        in_thread(|| {
            setns(&self.file, CloneFlags::CLONE_NEWNET)?;
            visit()
        })
    }
}

/// Runs `work` on a thread that ends with it, so that no namespace change outlives it.
pub(crate) fn in_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| scope.spawn(work).join()).map_err(|_| anyhow!("a thread of the bench panicked"))?
}

fn ip(plan: &str) -> Result<()> {
    let mut child = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().context("ip")?;
    child.stdin.take().context("ip has no standard input")?.write_all(plan.as_bytes())?;
    ensure!(child.wait()?.success(), "ip refused: {plan}");
    Ok(())
}
