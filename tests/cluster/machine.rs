//! The node as a machine: its power is cut, and it boots again. Files on its disk stay; processes, network, mounts and `/run`
//! go, except for what belongs to the tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cluster::Cluster;
use test_support::runtime::node::remove_tree;

/// Where `node/run` keeps its own files; containerd's images and etcd's data are there, too.
const STATE: &str = "/run/cluster";
/// What the node's components take for the kernel's.
pub(crate) const BOOT_ID: &str = "/run/cluster/boot_id";
/// What the others cannot start without, and what comes after it: the order of `node/run`.
const STAGES: [&[&str]; 2] = [
    &["etcd", "containerd", "kube-apiserver"],
    &["kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet"],
];

/// Reboots the node. Returns when its kubelet was started, after the API server could be asked.
pub(crate) fn reboot(cluster: &Cluster) -> Result<Instant> {
    cut_power(cluster)?;
    forget(cluster)?;
    fs::write(BOOT_ID, fs::read("/proc/sys/kernel/random/uuid")?)?;
    let [first, then] = STAGES;
    boot(first)?;
    cluster.until("the API server answers", |cluster| cluster.get("/version"))?;
    boot(then)?;
    let booted = Instant::now();
    cluster.until("the container runtime answers", |cluster| cluster.cri.version())?;
    Ok(booted)
}

/// Kills all processes at once.
fn cut_power(cluster: &Cluster) -> Result<()> {
    for component in STAGES.concat() {
        fs::write(down(component), "")?;
    }
    cluster.until("no process of the node is left", |_| {
        let left = processes()?;
        for process in &left {
            // It may have ended by now.
            let _ = kill(process.0, Signal::SIGKILL);
        }
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
}

fn boot(components: &[&'static str]) -> Result<()> {
    components.iter().try_for_each(|component| fs::remove_file(down(component)).context(*component))
}

/// `node/run` starts a component once this file is gone.
fn down(component: &str) -> PathBuf {
    Path::new(STATE).join("down").join(component)
}

/// The processes of the node and of its pods, with their names: all but those of `node/run` and of this program.
fn processes() -> Result<Vec<(Pid, String)>> {
    let this = std::process::id();
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        // `PID (NAME) STATE …`
        let (name, state) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')')).context(stat.clone())?;
        // `run` also calls programs.
        let of_tests = pid == this || ["run", "rm", "sleep"].contains(&name);
        if !of_tests && !state.trim_start().starts_with(['Z', 'X']) {
            processes.push((Pid::from_raw(pid.try_into()?), name.to_owned()));
        }
    }
    Ok(processes)
}

/// Removes what no reboot leaves: mounts, control groups, network devices, rules and all files of `/run`.
fn forget(cluster: &Cluster) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let of_pods =
        |point: &&str| ["/run/containerd/", "/run/netns", "/var/lib/kubelet/"].iter().any(|dir| point.starts_with(dir));
    let mut points: Vec<&str> = points.filter(of_pods).collect();
    points.reverse();
    for point in points {
        umount2(point, MntFlags::MNT_DETACH).with_context(|| format!("unmounting {point}"))?;
    }
    for hierarchy in control_groups()? {
        cluster.until("no pod has a control group", |_| match hierarchy.is_dir() {
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
    cluster.until("no pod has a network", |cluster| {
        let links = cluster.netns.command("ip", &["-oneline", "link", "show", "type", "veth"])?;
        ensure!(links.is_empty(), "{links}");
        Ok(())
    })
}

/// Those of the pods, in each hierarchy: siblings of this program's own.
fn control_groups() -> Result<Vec<PathBuf>> {
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let cluster = own.lines().find_map(|line| line.split('/').find(|name| name.starts_with("cluster-")));
    let pods = Path::new(cluster.with_context(|| own.clone())?).join("kubepods");
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(root)?.flatten().map(|entry| entry.path());
    Ok(std::iter::once(root.to_owned()).chain(hierarchies).map(|hierarchy| hierarchy.join(&pods)).collect())
}
