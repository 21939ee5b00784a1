//! Finding a pod's netns on its node: by the runtime's bind mounts, and by processes, matched by the pod's addresses.
//!
//! In-place repair calls it. Each namespace is entered once, however many names it has; the node's own and the caller's
//! are never looked into, let alone returned.

#![expect(clippy::disallowed_methods, reason = "lists the directories of bind mounts and the node's procfs")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use nix::sys::stat::stat;

use super::{addresses, enter};

/// Where network namespaces are named, as the caller sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Directories of bind mounts (`/run/netns`, `/var/run/docker/netns`).
    pub dirs: Vec<PathBuf>,
    /// The node's procfs.
    pub proc: PathBuf,
}

/// Which file system and inode a namespace is: the same whatever its name.
type Identity = (u64, u64);

/// Why no netns could be told to be the pod's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Every netns would match.
    #[error("the pod has no address yet, by which its netns could be told")]
    NoAddress,
    /// No netns has them all.
    #[error(
        "none of {looked} network namespaces has all of {wanted:?}; are the node's /proc and its directory of network \
         namespaces mounted here?"
    )]
    NotFound {
        /// How many were looked into.
        looked: usize,
        /// The addresses.
        wanted: Vec<IpAddr>,
    },
    /// More than one has them all: it would be a guess.
    #[error("several network namespaces have all of {wanted:?}: {found:?}")]
    Ambiguous {
        /// The addresses.
        wanted: Vec<IpAddr>,
        /// Their paths.
        found: Vec<PathBuf>,
    },
}

/// The one netns that has all the addresses `wanted`. No process of the pod needs to live, where a bind mount exists.
pub fn find(places: &Places, wanted: &[IpAddr]) -> Result<PathBuf, Error> {
    if wanted.is_empty() {
        return Err(Error::NoAddress);
    }
    let candidates = candidates(places);
    let looked = candidates.len();
    let mut found: Vec<PathBuf> = candidates.into_values().filter(|path| matches(path, wanted)).collect();
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (Some(last), false) => {
            found.push(last);
            Err(Error::Ambiguous { wanted: wanted.to_vec(), found })
        }
        (None, _) => Err(Error::NotFound { looked, wanted: wanted.to_vec() }),
    }
}

/// Whether the netns of the calling thread has all the addresses `wanted`.
pub fn has_all(wanted: &[IpAddr]) -> Result<bool, super::Error> {
    let present: BTreeSet<IpAddr> = addresses::read()?.iter().map(IpAddr::to_canonical).collect();
    Ok(wanted.iter().all(|ip| present.contains(&ip.to_canonical())))
}

/// One that is gone meanwhile, is no namespace or cannot be entered is not the one.
fn matches(path: &Path, wanted: &[IpAddr]) -> bool {
    matches!(enter(path, |_| has_all(wanted)), Ok(Ok(true)))
}

/// Each namespace by its first name: bind mounts outlive processes, so they come first.
fn candidates(places: &Places) -> BTreeMap<Identity, PathBuf> {
    let own = [PathBuf::from("/proc/self/ns/net"), places.proc.join("1/ns/net")];
    let excluded: BTreeSet<Identity> = own.iter().filter_map(|path| identity(path)).collect();
    let mounts = places.dirs.iter().flat_map(|dir| entries(dir));
    let processes = entries(&places.proc).filter(|path| is_process(path)).map(|path| path.join("ns/net"));
    let mut candidates = BTreeMap::new();
    for path in mounts.chain(processes) {
        if let Some(identity) = identity(&path).filter(|identity| !excluded.contains(identity)) {
            candidates.entry(identity).or_insert(path);
        }
    }
    candidates
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
        let places = Places { dirs: vec!["/nowhere".into()], proc: "/nowhere".into() };
        assert_eq!(find(&places, &[]), Err(Error::NoAddress));
    }

    #[test]
    fn nowhere_to_look_is_said() {
        let places = Places { dirs: vec!["/nowhere".into()], proc: "/nowhere".into() };
        let wanted = vec!["10.0.0.1".parse().unwrap()];
        assert_eq!(find(&places, &wanted), Err(Error::NotFound { looked: 0, wanted: wanted.clone() }));
    }
}
