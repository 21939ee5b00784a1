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

use nix::errno::Errno;
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
#[derive(Debug, thiserror::Error)]
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
    /// A directory, a name of a network namespace or a process's cgroup cannot be read, and no process identifies the
    /// pod's netns among those that could be: the pod's may be missing among them.
    #[error("the pod's network namespace cannot be identified, because {} cannot be read", path.display())]
    Unread { path: PathBuf, source: io::Error },
    /// A netns cannot be entered or its addresses cannot be read, and no process identifies the pod's netns among the
    /// others: this one may be the pod's.
    #[error("the pod's network namespace cannot be identified, because {} cannot be examined", path.display())]
    Unexamined { path: PathBuf, source: super::Error },
}

/// Returns the path of the netns with all the pod's addresses; of several, the one with a process of the pod. A netns
/// with a bind mount is found even if no process runs in it.
pub fn find(paths: &SearchPaths, wanted: &PodIdentity<'_>) -> Result<PathBuf, Error> {
    if wanted.ips.is_empty() {
        return Err(Error::NoAddress);
    }
    let mut search = Search::default();
    let mut found = search.candidates(paths)?;
    let examined = found.len();
    found.retain(|_, path| search.matches(path, wanted.ips));
    let mut is_identified = false;
    if found.len() > 1 || search.failure.is_some() {
        let pods = search.namespaces_of(&paths.proc, wanted.uid);
        is_identified = found.keys().any(|identity| pods.contains(identity));
        found.retain(|identity, _| !is_identified || pods.contains(identity));
    }
    if let Some(failure) = search.failure.filter(|_| !is_identified) {
        return Err(failure);
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

/// A search, which continues after failures.
#[derive(Default)]
struct Search {
    /// The first failure. A namespace or process that is gone is none.
    failure: Option<Error>,
}

impl Search {
    /// Returns the value of a success, and keeps the error of the first failure.
    fn keep<T>(&mut self, result: Result<Option<T>, Error>) -> Option<T> {
        result.unwrap_or_else(|error| {
            self.failure.get_or_insert(error);
            None
        })
    }

    /// Whether a netns matches; false if it is gone, is not a netns or cannot be examined.
    fn matches(&mut self, path: &Path, wanted: &[IpAddr]) -> bool {
        let matches = match Netns::open(path).and_then(|netns| netns.enter(|| has_all(wanted))?) {
            // open(2) returns ENXIO for a socket.
            Err(super::Error::Gone { .. } | super::Error::NotNetns { .. })
            | Err(super::Error::Open { source: Errno::ENXIO, .. }) => Ok(None),
            Err(source) => Err(Error::Unexamined { path: path.to_owned(), source }),
            Ok(matches) => Ok(Some(matches)),
        };
        self.keep(matches) == Some(true)
    }

    /// Lists each namespace with its first path; bind mounts come first, because they outlive processes. Fails if the
    /// node's or the caller's namespace cannot be excluded.
    fn candidates(&mut self, paths: &SearchPaths) -> Result<BTreeMap<Identity, PathBuf>, Error> {
        let mut excluded = BTreeSet::new();
        for path in [PathBuf::from("/proc/self/ns/net"), paths.proc.join("1/ns/net")] {
            excluded.extend(identity(&path)?);
        }
        let mounts: Vec<PathBuf> = paths.dirs.iter().flat_map(|dir| self.entries(dir)).collect();
        let processes = self.processes(&paths.proc).into_iter().map(|path| path.join("ns/net"));
        let mut candidates = BTreeMap::new();
        for path in mounts.into_iter().chain(processes) {
            if let Some(identity) = self.keep(identity(&path)).filter(|identity| !excluded.contains(identity)) {
                candidates.entry(identity).or_insert(path);
            }
        }
        Ok(candidates)
    }

    /// Returns the network namespaces of a pod's processes. The names of their cgroups contain the pod's UID, in which
    /// some runtimes replace `-` by `_`.
    fn namespaces_of(&mut self, proc: &Path, uid: &str) -> BTreeSet<Identity> {
        let mut namespaces = BTreeSet::new();
        if uid.is_empty() {
            return namespaces;
        }
        let spellings = [format!("pod{uid}"), format!("pod{}", uid.replace('-', "_"))];
        for process in self.processes(proc) {
            let path = process.join("cgroup");
            let cgroup = self.keep(read_start(&path).map(Some).or_else(|error| unless_gone(&path, error)));
            if cgroup.is_some_and(|cgroup| spellings.iter().any(|spelling| cgroup.contains(spelling))) {
                namespaces.extend(self.keep(identity(&process.join("ns/net"))));
            }
        }
        namespaces
    }

    fn processes(&mut self, proc: &Path) -> Vec<PathBuf> {
        let mut entries = self.entries(proc);
        entries.retain(|path| is_process(path));
        entries
    }

    /// Lists a directory; one that does not exist is empty.
    fn entries(&mut self, dir: &Path) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        let listed = self.keep(fs::read_dir(dir).map(Some).or_else(|error| unless_gone(dir, error)));
        for entry in listed.into_iter().flatten() {
            let path = entry.map(|entry| Some(entry.path())).or_else(|error| unless_gone(dir, error));
            paths.extend(self.keep(path));
        }
        paths
    }
}

fn read_start(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(path)?.take(LARGEST_CGROUP).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn is_process(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns none if nothing exists at the path.
fn identity(path: &Path) -> Result<Option<Identity>, Error> {
    stat(path).map(|found| Some((found.st_dev, found.st_ino))).or_else(|errno| unless_gone(path, errno.into()))
}

/// Returns none for errors of a path that does not exist, or of the procfs of a process that has ended.
fn unless_gone<T>(path: &Path, error: io::Error) -> Result<Option<T>, Error> {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT | Errno::ESRCH) => Ok(None),
        _ => Err(Error::Unread { path: path.to_owned(), source: error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_without_address_matches_no_netns() {
        let paths = SearchPaths { dirs: vec!["/nowhere".into()], proc: "/nowhere".into() };
        assert!(matches!(find(&paths, &PodIdentity { ips: &[], uid: "u" }), Err(Error::NoAddress)));
    }

    #[test]
    fn without_candidates_nothing_is_found() {
        let paths = SearchPaths { dirs: vec!["/nowhere".into()], proc: "/nowhere".into() };
        let wanted = vec!["10.0.0.1".parse().unwrap()];
        let found = find(&paths, &PodIdentity { ips: &wanted, uid: "u" });
        assert!(matches!(found, Err(Error::NotFound { examined: 0, .. })), "{found:?}");
    }
}
