//! Finds a pod's netns on its node: candidates are the runtime's bind mounts and processes, matched by the pod's
//! addresses.
//!
//! For in-place repair. Each namespace is entered once, whatever its number of names; the node's and the caller's
//! namespaces are never entered. Pods can assign themselves any address, and namespaces outlive their pods: if several
//! match, the one with processes in the pod's cgroup is selected.

#![expect(clippy::disallowed_methods, reason = "lists the directories of bind mounts and the node's procfs")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use nix::sys::stat::stat;

use super::{Netns, addresses};

/// The size limit of `/proc/PID/cgroup` in bytes. The file has one line for each cgroup hierarchy.
const LARGEST_CGROUP: u64 = 64 << 10;

/// The paths under which network namespaces are found, as seen by the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchPaths {
    /// Directories of bind mounts (`/run/netns`, `/var/run/docker/netns`).
    pub dirs: Vec<PathBuf>,
    pub proc: PathBuf,
}

/// The pod whose netns is searched.
#[derive(Debug, Clone, Copy)]
pub struct PodIdentity<'a> {
    /// The pod's addresses, all of which its netns must have.
    pub ips: &'a [IpAddr],
    /// The UID that the kubelet uses for the pod, which is part of the names of the pod's cgroups.
    pub uid: &'a str,
}

/// Device and inode of a namespace, which identify it under any path.
type Identity = (u64, u64);

/// No netns was identified as the pod's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Without an address every netns would match.
    #[error("the pod's network namespace cannot be identified, because the pod has no IP address yet")]
    NoAddress,
    /// No netns has all the addresses.
    #[error(
        "none of {examined} network namespaces has all addresses of the pod, {wanted:?}; are the node's /proc and its \
         directory of network namespaces mounted here?"
    )]
    NotFound {
        /// The number of namespaces entered.
        examined: usize,
        wanted: Vec<IpAddr>,
    },
    /// Several netns have all the addresses, and no process identifies the pod's.
    #[error(
        "several network namespaces have all addresses of the pod, {wanted:?}, and the pod's processes are in none or \
         in several of them: {found:?}"
    )]
    Ambiguous { wanted: Vec<IpAddr>, found: Vec<PathBuf> },
}

/// Returns the path of the netns with all the pod's addresses; of several, the one with a process of the pod. A netns
/// with a bind mount is found even if no process runs in it.
pub fn find(paths: &SearchPaths, wanted: &PodIdentity<'_>) -> Result<PathBuf, Error> {
    if wanted.ips.is_empty() {
        return Err(Error::NoAddress);
    }
    let mut found = candidates(paths);
    let examined = found.len();
    found.retain(|_, path| matches(path, wanted.ips));
    if found.len() > 1 {
        let pods = namespaces_of(&paths.proc, wanted.uid);
        if found.keys().any(|identity| pods.contains(identity)) {
            found.retain(|identity, _| pods.contains(identity));
        }
    }
    let mut matching: Vec<PathBuf> = found.into_values().collect();
    match (matching.pop(), matching.is_empty()) {
        (Some(only), true) => Ok(only),
        (Some(last), false) => {
            matching.push(last);
            Err(Error::Ambiguous { wanted: wanted.ips.to_vec(), found: matching })
        }
        (None, _) => Err(Error::NotFound { examined, wanted: wanted.ips.to_vec() }),
    }
}

/// Whether the calling thread's netns has all the addresses.
pub fn has_all(wanted: &[IpAddr]) -> Result<bool, super::Error> {
    let present: BTreeSet<IpAddr> = addresses::read()?.iter().map(IpAddr::to_canonical).collect();
    Ok(wanted.iter().all(|ip| present.contains(&ip.to_canonical())))
}

/// Whether a netns matches; false if it is gone, is not a netns or cannot be entered.
fn matches(path: &Path, wanted: &[IpAddr]) -> bool {
    matches!(Netns::open(path).and_then(|netns| netns.enter(|| has_all(wanted))), Ok(Ok(true)))
}

/// Lists each namespace with its first path; bind mounts come first, because they outlive processes.
fn candidates(paths: &SearchPaths) -> BTreeMap<Identity, PathBuf> {
    let own = [PathBuf::from("/proc/self/ns/net"), paths.proc.join("1/ns/net")];
    let excluded: BTreeSet<Identity> = own.iter().filter_map(|path| identity(path)).collect();
    let mounts = paths.dirs.iter().flat_map(|dir| entries(dir));
    let mut candidates = BTreeMap::new();
    for path in mounts.chain(processes(&paths.proc).map(|path| path.join("ns/net"))) {
        if let Some(identity) = identity(&path).filter(|identity| !excluded.contains(identity)) {
            candidates.entry(identity).or_insert(path);
        }
    }
    candidates
}

/// Returns the network namespaces of a pod's processes. The names of their cgroups contain the pod's UID, in which some
/// runtimes replace `-` by `_`.
fn namespaces_of(proc: &Path, uid: &str) -> BTreeSet<Identity> {
    let spellings = [format!("pod{uid}"), format!("pod{}", uid.replace('-', "_"))];
    let of_pod = |path: &PathBuf| {
        let cgroup = read_start(&path.join("cgroup")).unwrap_or_default();
        !uid.is_empty() && spellings.iter().any(|spelling| cgroup.contains(spelling))
    };
    processes(proc).filter(of_pod).filter_map(|path| identity(&path.join("ns/net"))).collect()
}

fn read_start(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(path)?.take(LARGEST_CGROUP).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn processes(proc: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    entries(proc).filter(|path| is_process(path))
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(dir).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

fn is_process(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.bytes().all(|b| b.is_ascii_digit()))
}

fn identity(path: &Path) -> Option<Identity> {
    stat(path).ok().map(|found| (found.st_dev, found.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_without_address_matches_no_netns() {
        let paths = SearchPaths { dirs: vec!["/nowhere".into()], proc: "/nowhere".into() };
        assert_eq!(find(&paths, &PodIdentity { ips: &[], uid: "u" }), Err(Error::NoAddress));
    }

    #[test]
    fn without_candidates_nothing_is_found() {
        let paths = SearchPaths { dirs: vec!["/nowhere".into()], proc: "/nowhere".into() };
        let wanted = vec!["10.0.0.1".parse().unwrap()];
        let found = find(&paths, &PodIdentity { ips: &wanted, uid: "u" });
        assert_eq!(found, Err(Error::NotFound { examined: 0, wanted }));
    }
}
