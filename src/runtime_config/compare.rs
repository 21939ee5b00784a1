//! Compares the directories that an agent was given with those that the runtimes' configurations name.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{Directories, Error, read, resolve};

/// A directory that an agent was given.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    /// The path in this process's mounts.
    pub path: &'a Path,
    /// The path on the node, if it is known.
    pub on_node: Option<&'a Path>,
}

/// The directories of one runtime's configuration, and whether the given ones are among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared {
    pub read: Directories,
    pub is_conf: bool,
    pub is_bin: bool,
    /// The handlers of RuntimeClasses whose networks are in a directory other than the given one.
    pub elsewhere: Vec<String>,
}

/// Compares the given directories with those of the runtimes of the node whose root is mounted at `root`.
pub fn compare(root: &Path, conf: Given<'_>, bin: Given<'_>) -> Vec<Result<Compared, Error>> {
    let elsewhere = |read: &Directories| {
        let dirs = read.handlers.by_name.iter().filter_map(|(name, of)| Some((name, &of.conf.as_ref()?.value)));
        dirs.filter(|(_, dir)| !conf.is(dir, root)).map(|(name, _)| name.clone()).collect()
    };
    let compared = |read: Directories| Compared {
        elsewhere: elsewhere(&read),
        is_conf: conf.is(&read.conf.value, root),
        is_bin: read.bin.value.iter().any(|dir| bin.is(dir, root)),
        read,
    };
    read(root).into_iter().map(|read| read.map(compared)).collect()
}

impl Given<'_> {
    /// Whether this is the node's directory `path`. Directories are compared by device and inode, or by path if one does not exist
    /// yet or is not mounted below `root`.
    pub fn is(self, path: &Path, root: &Path) -> bool {
        // `Path` ignores a slash at the end, and repeated ones.
        if self.on_node == Some(path) {
            return true;
        }
        let Ok(on_node) = resolve(root, path) else { return false };
        let id = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        match (id(self.path), id(&on_node)) {
            (Some(given), Some(on_node)) => given == on_node,
            _ => self.path == on_node,
        }
    }
}

impl Compared {
    /// Returns the chart's values that would name the runtime's directories, such as `cniConfDir to /x`; none if the given ones are these.
    pub fn values(&self) -> Vec<String> {
        let conf = (!self.is_conf).then(|| format!("cniConfDir to {}", self.read.conf.value.display()));
        let bin = (!self.is_bin).then(|| format!("cniBinDir to {}", list(&self.read.bin.value)));
        conf.into_iter().chain(bin).collect()
    }
}

/// Returns the paths, separated by commas.
pub(super) fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_compared_by_identity_and_by_path() {
        let root = tempfile::tempdir().unwrap();
        for dir in ["etc/net.d", "mounted", "opt/bin"] {
            fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        std::os::unix::fs::symlink("/etc/net.d", root.path().join("opt/link")).unwrap();
        let below = |path: &str| root.path().join(path);
        for (path, on_node, named, expected) in [
            ("etc/net.d", None, "/etc/net.d", true),
            ("etc/net.d", None, "/opt/link", true),
            ("mounted", None, "/etc/net.d", false),
            ("mounted", Some("/missing"), "/missing/", true),
            ("mounted", Some("/other"), "/missing", false),
            ("missing", None, "/missing", true),
        ] {
            let path = below(path);
            let given = Given { path: &path, on_node: on_node.map(Path::new) };
            assert_eq!(given.is(Path::new(named), root.path()), expected, "{given:?} {named}");
        }
    }
}
