//! Parses the mounts of a process from `/proc/PID/mountinfo`, and finds those that can still be reached by path.
//!
//! Suites use it to unmount file systems by path. It changes nothing itself.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// A mount, with the fields of mountinfo that determine which paths lead to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    id: u32,
    parent: u32,
    point: PathBuf,
}

/// Parses the lines of mountinfo; an error contains the line that has another format.
pub fn parse(mountinfo: &str) -> Result<Vec<Mount>, String> {
    let mount = |line: &str| {
        let mut fields = line.split(' ');
        let (id, parent) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        // The device number and the root of the mount within its file system precede the mount point.
        Some(Mount { id, parent, point: unescape(fields.nth(2)?) })
    };
    mountinfo.lines().map(|line| mount(line).ok_or_else(|| format!("no line of mountinfo: {line:?}"))).collect()
}

/// Returns the mount points of the mounts that can be reached by path: no later mount on the same path or on an ancestor covers them. A
/// mount precedes the mount that it is in, so they can be unmounted in this order.
pub fn reachable(mounts: &[Mount]) -> Vec<&Path> {
    let crossed = mounts.iter().filter_map(|mount| {
        let depth = walk(mounts, &mount.point).iter().position(|crossed| crossed.id == mount.id)?;
        Some((depth, mount.point.as_path()))
    });
    let mut crossed: Vec<_> = crossed.collect();
    crossed.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
    crossed.into_iter().map(|(_, point)| point).collect()
}

/// Returns the mounts that the kernel crosses on its way from the root to a path, in this order.
fn walk<'m>(mounts: &'m [Mount], path: &Path) -> Vec<&'m Mount> {
    let is_listed = |id: u32| mounts.iter().any(|mount| mount.id == id);
    let mut crossed = Vec::new();
    // The parent of the root mount is the root mount itself, or is not listed because it is in another namespace.
    let mut next = mounts.iter().find(|mount| mount.parent == mount.id || !is_listed(mount.parent));
    while let Some(mount) = next {
        crossed.push(mount);
        let inside = mounts.iter().filter(|one| one.parent == mount.id && one.id != mount.id);
        // The walk meets the child with the shortest path first; a child on the mount's own root covers all others.
        let met = inside.filter(|child| path.starts_with(&child.point));
        next = met.min_by_key(|child| child.point.as_os_str().len());
    }
    crossed
}

/// Replaces the kernel's octal escapes, such as `\040` for a space.
fn unescape(field: &str) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), field.as_bytes());
    while let [first, tail @ ..] = rest {
        let code = match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &rest[4..] } else { tail };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(mountinfo: &str) -> Vec<String> {
        let mounts = parse(mountinfo).unwrap();
        reachable(&mounts).iter().map(|point| point.display().to_string()).collect()
    }

    #[test]
    fn a_mount_that_a_mount_on_an_ancestor_covers_is_not_reachable() {
        // The machine's mount on /run/netns is covered by a file system on /run. `own` is that file system's mount on /run/netns.
        let covered = "27 1 254:0 / / rw - ext4 /dev/vda rw\n\
                       40 27 0:24 /netns /run/netns rw shared:1 - tmpfs tmpfs rw\n\
                       41 27 0:50 / /run rw - tmpfs tmpfs rw\n";
        assert_eq!(points(covered), ["/run", "/"]);
        let own = "42 41 0:50 /netns /run/netns rw - tmpfs tmpfs rw\n\
                   43 42 0:4 net:[1] /run/netns/cni-1 rw - nsfs nsfs rw\n";
        assert_eq!(points(&format!("{covered}{own}")), ["/run/netns/cni-1", "/run/netns", "/run", "/"]);
    }

    #[test]
    fn mounts_on_one_path_are_reachable_from_the_last_to_the_first() {
        let stacked = "27 1 254:0 / / rw - ext4 /dev/vda rw\n\
                       42 41 0:52 / /run/netns rw - tmpfs second rw\n\
                       40 27 0:50 / /run rw - tmpfs tmpfs rw\n\
                       41 40 0:51 / /run/netns rw - tmpfs first rw\n";
        assert_eq!(points(stacked), ["/run/netns", "/run/netns", "/run", "/"]);
        // The second file system covers the mounts within the first.
        let within = "50 41 0:4 net:[1] /run/netns/cni-1 rw - nsfs nsfs rw\n";
        assert_eq!(points(&format!("{stacked}{within}")), ["/run/netns", "/run/netns", "/run", "/"]);
    }

    #[test]
    fn a_path_that_only_begins_like_a_mount_point_is_not_below_it() {
        let beside = "27 27 254:0 / / rw - ext4 /dev/vda rw\n\
                      40 27 0:50 / /run rw - tmpfs tmpfs rw\n\
                      41 27 0:51 / /running rw - tmpfs tmpfs rw\n";
        assert_eq!(points(beside), ["/run", "/running", "/"]);
    }

    #[test]
    fn escapes_of_the_kernel_are_replaced() {
        let mounts = parse("27 1 254:0 / /a\\040b\\134c\\04 rw - ext4 /dev/vda rw\n").unwrap();
        assert_eq!(mounts, [Mount { id: 27, parent: 1, point: "/a b\\c\\04".into() }]);
    }

    #[test]
    fn a_line_of_another_format_is_named() {
        assert_eq!(parse("tmpfs /run tmpfs rw"), Err(r#"no line of mountinfo: "tmpfs /run tmpfs rw""#.to_owned()));
    }
}
