//! Resolves paths of a node whose root is mounted in a directory: links are followed on the node, never in this process's root.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// The largest number of links on the way to a file, as in the kernel (`MAXSYMLINKS`).
const MAX_LINKS: usize = 40;

/// Returns the path, without links, that leads to the node's `path` if the node's root is mounted at `root`. `..` stops at that root,
/// and an absolute link starts from it. Parts that do not exist stay as they are.
pub fn resolve(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let (mut at, mut links) = (PathBuf::new(), 0);
    let mut pending = parts(path);
    while let Some(part) = pending.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        at.push(part);
        let found = match fs::symlink_metadata(root.join(&at)) {
            Ok(found) => found,
            Err(error) if is_missing(&error) => continue,
            Err(error) => return Err(error),
        };
        if found.is_symlink() {
            links += 1;
            if links > MAX_LINKS {
                return Err(io::Error::other(format!("more than {MAX_LINKS} links")));
            }
            let target = fs::read_link(root.join(&at))?;
            if target.is_absolute() {
                at.clear();
            } else {
                at.pop();
            }
            pending.extend(parts(&target));
        }
    }
    Ok(root.join(at))
}

/// Whether the error means that a path does not exist.
pub(super) fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Returns the names in a path, and `..`, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().rev().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    parts.map(|part| part.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_on_the_node() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        fs::create_dir_all(root.join("var/snap/microk8s/7/args")).unwrap();
        fs::create_dir_all(root.join("opt/real")).unwrap();
        for (link, target) in [
            ("var/snap/microk8s/current", "7"),
            ("opt/absolute", "/var/snap/microk8s/current"),
            ("opt/up", "../../../../../../opt/real"),
            ("opt/dangling", "/etc/cni/later"),
            ("opt/loop", "loop"),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        for (path, expected) in [
            ("/var/snap/microk8s/current/args", Some("var/snap/microk8s/7/args")),
            ("/opt/absolute/args/cni", Some("var/snap/microk8s/7/args/cni")),
            ("/opt/up/../up/x", Some("opt/real/x")),
            ("/../../opt/./real", Some("opt/real")),
            ("/opt/dangling/net.d", Some("etc/cni/later/net.d")),
            ("/opt/loop/x", None),
            ("/", Some("")),
        ] {
            let found = resolve(root, Path::new(path)).ok();
            assert_eq!(found, expected.map(|path| root.join(path)), "{path}");
        }
        let found = resolve(Path::new("/"), root).unwrap();
        assert_eq!(found, fs::canonicalize(root).unwrap());
    }
}
