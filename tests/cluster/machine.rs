//! Simulates a power failure and a boot of the node. The files on disk are kept; processes, network, mounts and `/run`
//! are lost, except those that the tests themselves need.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cluster::Cluster;
use crate::enter::Runtime;
use test_support::mounts;
use test_support::runtime::node::remove_tree;

/// The directory in which the script `node/run` keeps its state, the container runtime's images and etcd's data. A reboot does not
/// clear it.
const STATE: &str = "/run/cluster";
/// The file that is mounted over the kernel's `boot_id` in the cluster.
pub(crate) const BOOT_ID: &str = "/run/cluster/boot_id";
/// The components that depend on the components in [`first`].
const THEN: [&str; 4] = ["kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet"];

/// The components that the script `node/run` starts first.
fn first() -> Result<[&'static str; 3]> {
    let runtime = Runtime::here().context("this program runs outside of a cluster")?;
    Ok(["etcd", runtime.component(), "kube-apiserver"])
}

/// Reboots the node. Returns the time at which its kubelet was started, which is after the API server and the
/// container runtime responded.
pub(crate) fn reboot(cluster: &Cluster) -> Result<Instant> {
    let cleared = cut_power(cluster).and_then(|()| clear(cluster));
    fs::write(BOOT_ID, fs::read("/proc/sys/kernel/random/uuid")?)?;
    // The node boots even if the simulation has failed: the clean-up after the trial needs it.
    let booted = start(cluster);
    cleared.and(booted)
}

/// Starts the components and returns the time at which the kubelet was started.
fn start(cluster: &Cluster) -> Result<Instant> {
    boot(&first()?)?;
    cluster.until("the API server responds", |cluster| cluster.get("/version"))?;
    cluster.until("the container runtime responds", |cluster| cluster.cri.version())?;
    let booted = Instant::now();
    boot(&THEN)?;
    Ok(booted)
}

/// Kills all processes of the node.
fn cut_power(cluster: &Cluster) -> Result<()> {
    for component in first()?.into_iter().chain(THEN) {
        fs::write(down(component), "")?;
    }
    cluster.until("no process of the node is left", |_| {
        let left = processes()?;
        for process in &left {
            // The process may have exited meanwhile.
            let _ = kill(process.0, Signal::SIGKILL);
        }
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
}

fn boot(components: &[&'static str]) -> Result<()> {
    components.iter().try_for_each(|component| fs::remove_file(down(component)).context(*component))
}

/// Returns the path of the file whose removal makes `node/run` start a component.
fn down(component: &str) -> PathBuf {
    Path::new(STATE).join("down").join(component)
}

/// Returns the processes of the node and of its pods with their names, except the script `node/run` and this program.
fn processes() -> Result<Vec<(Pid, String)>> {
    let this = std::process::id();
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        // The format is `PID (NAME) STATE …`.
        let (name, state) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')')).context(stat.clone())?;
        // The script `node/run` starts `rm` and `sleep`.
        let of_tests = pid == this || ["run", "rm", "sleep"].contains(&name);
        if !of_tests && !state.trim_start().starts_with(['Z', 'X']) {
            processes.push((Pid::from_raw(pid.try_into()?), name.to_owned()));
        }
    }
    Ok(processes)
}

/// Removes what a reboot removes: mounts, cgroups, network devices, rules and the files of `/run`.
fn clear(cluster: &Cluster) -> Result<()> {
    cluster.until("no mount of a pod is left", |_| unmount())?;
    for hierarchy in control_groups()? {
        cluster.until("no pod has a cgroup", |_| match hierarchy.is_dir() {
            true => remove_tree(&hierarchy).with_context(|| hierarchy.display().to_string()),
            false => Ok(()),
        })?;
    }
    for entry in fs::read_dir("/run")?.flatten() {
        let path = entry.path();
        match entry.file_name().to_str() {
            Some("cluster" | "kubernetes") => {}
            _ if entry.file_type()?.is_dir() => {
                fs::remove_dir_all(&path).with_context(|| path.display().to_string())?;
            }
            _ => fs::remove_file(&path).with_context(|| path.display().to_string())?,
        }
    }
    cluster.netns.command("nft", &["flush", "ruleset"])?;
    cluster.until("no pod has a network device", |cluster| {
        let links = cluster.netns.command("ip", &["-oneline", "link", "show", "type", "veth"])?;
        ensure!(links.is_empty(), "{links}");
        Ok(())
    })
}

/// The directories below which the components mount file systems for pods.
const MOUNTS: [&str; 7] =
    ["/run/containerd", "/run/containers", "/run/ipcns", "/run/netns", "/run/pidns", "/run/utsns", "/var/lib/kubelet"];

/// Unmounts the file systems of pods. Fails if there were any, because another one may now be reachable.
fn unmount() -> Result<()> {
    let mounts = mounts::parse(&fs::read_to_string("/proc/self/mountinfo")?).map_err(anyhow::Error::msg)?;
    let of_pods = |point: &&Path| MOUNTS.iter().any(|dir| point.starts_with(dir));
    let points: Vec<&Path> = mounts::reachable(&mounts).into_iter().filter(of_pods).collect();
    for point in &points {
        match umount2(*point, MntFlags::MNT_DETACH) {
            // The kernel may have unmounted it already, by propagation from another mount.
            Ok(()) | Err(Errno::EINVAL) => {}
            Err(error) => return Err(error).with_context(|| format!("unmounting {}", point.display())),
        }
    }
    ensure!(points.is_empty(), "{points:?}");
    Ok(())
}

/// Returns the cgroups of the pods in each hierarchy. They have the same parent as this program's cgroup.
fn control_groups() -> Result<Vec<PathBuf>> {
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let cluster = own.lines().find_map(|line| line.split('/').find(|name| name.starts_with("cluster-")));
    let pods = Path::new(cluster.with_context(|| own.clone())?).join("kubepods");
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(root)?.flatten().map(|entry| entry.path());
    Ok(std::iter::once(root.to_owned()).chain(hierarchies).map(|hierarchy| hierarchy.join(&pods)).collect())
}
