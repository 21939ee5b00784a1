//! Detects that a mounted directory of the node was moved or removed after the container's start.
//!
//! A bind mount holds the directory itself, not its path. If the node's directory is moved or removed and created again, the
//! container still has the former one, which the runtime does not read. Only a restarted container mounts the new one. The field
//! `root` of `/proc/self/mountinfo` shows the present path of the mounted directory in its file system, with the suffix `//deleted`
//! once it is removed. A directory that is neither a mount nor inside a moved one is opened by its path in each pass and needs no
//! check.
#![expect(clippy::disallowed_methods, reason = "reads /proc/self/mountinfo")]

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::read::too_large;
use super::settings::InstallSettings;

const MOUNTINFO: &str = "/proc/self/mountinfo";
/// The maximum size of the list of mounts, in bytes.
const MAX: u64 = 16 << 20;
/// The suffix that the kernel adds to the path of a removed directory. No other path contains two slashes in a row.
const DELETED: &[u8] = b"//deleted";

/// A mounted directory is no longer at its former path on the node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} is the mount of a directory that the node no longer has at its place: {}; nothing is changed in it. The kubelet restarts \
     the container, which then mounts the directory that is at that place", path.display(), change(from, to)
)]
pub struct Replaced {
    /// The path in the container.
    pub path: PathBuf,
    /// The path of the directory in its file system at the container's start.
    from: PathBuf,
    /// The present path; `None` if the directory was removed.
    to: Option<PathBuf>,
}

fn change(from: &Path, to: &Option<PathBuf>) -> String {
    match to {
        Some(to) => format!("{} was moved to {}", from.display(), to.display()),
        None => format!("{} was removed", from.display()),
    }
}

/// The mounts that hold the directories of an installation, as they were at the start.
#[derive(Debug, Default)]
pub struct Mounts {
    directories: Vec<Held>,
    /// The mount that holds the runtime's cache. An installation is complete without it.
    cache: Option<Held>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    /// The directory as the settings name it.
    path: PathBuf,
    mount: Mount,
    /// Device and inode of the mounted directory. The kernel may reuse the id of a mount.
    file: (u64, u64),
}

/// A line of `mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    id: u64,
    root: PathBuf,
    point: PathBuf,
    is_deleted: bool,
}

impl Mounts {
    /// Records the mounts that hold the directories of `settings`. A missing directory is left out.
    pub fn of(settings: &InstallSettings) -> Self {
        let mounts = match read() {
            Ok(mounts) => mounts,
            Err(error) => {
                tracing::warn!(%error, "{MOUNTINFO} cannot be read: a replaced directory of the node is not noticed");
                return Self::default();
            }
        };
        let held = |path: &PathBuf| {
            let mount = holding(&mounts, &fs::canonicalize(path).ok()?)?.clone();
            Some(Held { path: path.clone(), file: identity(&mount.point).ok()?, mount })
        };
        let directories = [&settings.net_dir, &settings.bin_dir, &settings.run_dir];
        Self { directories: directories.into_iter().filter_map(held).collect(), cache: held(&settings.cache_dir) }
    }

    /// Returns the first directory that is no longer at its former path. `None` also if the list of mounts cannot be read.
    pub fn replaced(&self) -> Option<Replaced> {
        find_replaced(&self.directories)
    }

    /// Returns the runtime's cache if it is no longer at its former path: the runtime then writes to another directory.
    pub fn replaced_cache(&self) -> Option<Replaced> {
        find_replaced(self.cache.as_slice())
    }
}

fn find_replaced(all: &[Held]) -> Option<Replaced> {
    let mounts = read().ok()?;
    all.iter().find_map(|held| held.replaced(holding(&mounts, &held.mount.point)?, identity(&held.mount.point).ok()?))
}

impl Held {
    /// Compares the mount with the one that is `now` at its mount point, and the directory there. Another mount at that point does
    /// not mean that the directory was replaced.
    fn replaced(&self, now: &Mount, file: (u64, u64)) -> Option<Replaced> {
        let is_same = now.point == self.mount.point && now.id == self.mount.id && file == self.file;
        let has_moved = now.is_deleted || now.root != self.mount.root;
        let to = (!now.is_deleted).then(|| now.root.clone());
        (is_same && has_moved).then(|| Replaced { path: self.path.clone(), from: self.mount.root.clone(), to })
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(path).map(|found| (found.dev(), found.ino()))
}

fn read() -> io::Result<Vec<Mount>> {
    let mut content = Vec::new();
    File::open(MOUNTINFO)?.take(MAX + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX {
        return Err(too_large(MAX));
    }
    Ok(parse(&content))
}

/// Returns the mounts in a `mountinfo`. Lines of another form are left out.
fn parse(content: &[u8]) -> Vec<Mount> {
    content.split(|byte| *byte == b'\n').filter_map(Mount::parse).collect()
}

/// Returns the mount that holds a path: the last of those with the longest mount point, which covers the others.
fn holding<'m>(mounts: &'m [Mount], path: &Path) -> Option<&'m Mount> {
    let holding = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    holding.max_by_key(|mount| mount.point.components().count())
}

impl Mount {
    /// Parses `ID PARENT MAJOR:MINOR ROOT POINT …`. The optional fields come later.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let (root, point) = (fields.nth(2)?, fields.next()?);
        let kept = root.strip_suffix(DELETED);
        let [root, point] = [kept.unwrap_or(root), point].map(unescaped);
        (root.is_absolute() && point.is_absolute()).then_some(Self { id, root, point, is_deleted: kept.is_some() })
    }
}

/// Replaces the kernel's octal escapes, such as `\040` for a space.
fn unescaped(field: &[u8]) -> PathBuf {
    let (mut path, mut rest) = (Vec::with_capacity(field.len()), field);
    while let Some((first, after)) = rest.split_first() {
        let octal = |digit: &u8| (b'0'..=b'7').contains(digit).then(|| u32::from(digit - b'0'));
        let code = match after {
            [a, b, c, ..] if *first == b'\\' => {
                octal(a).zip(octal(b)).zip(octal(c)).map(|((a, b), c)| a * 64 + b * 8 + c)
            }
            _ => None,
        };
        match code.and_then(|code| u8::try_from(code).ok()) {
            Some(byte) => {
                path.push(byte);
                rest = &after[3..];
            }
            None => {
                path.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(line: &str) -> Held {
        Held { path: "/host/net.d".into(), mount: Mount::parse(line.as_bytes()).unwrap(), file: (8, 5) }
    }

    #[test]
    fn lines_are_parsed_with_escapes_and_optional_fields() {
        let text = b"1 0 8:1 / / rw - ext4 /dev/sda rw\n\
                     36 1 8:1 /a\\040b\\134c /m\\011n rw master:1 shared:2 - ext4 /dev/sda rw\n\
                     37 1 8:1 /etc/x//deleted /x\\777\\ rw - ext4 /dev/sda rw\nbroken\n38 1 8:1 net:[4026] /n rw - nsfs nsfs rw\n\n";
        let mounts = parse(text);
        let at = |n: usize| (mounts[n].id, mounts[n].root.to_str().unwrap(), mounts[n].point.to_str().unwrap());
        assert_eq!(mounts.len(), 3, "{mounts:?}");
        assert_eq!((at(0), at(1)), ((1, "/", "/"), (36, "/a b\\c", "/m\tn")));
        assert_eq!((at(2), mounts[2].is_deleted, mounts[1].is_deleted), ((37, "/etc/x", "/x\\777\\"), true, false));
    }

    #[test]
    fn the_last_mount_with_the_longest_mount_point_holds_a_path() {
        let mounts = parse(b"1 0 8:1 / / rw\n2 1 8:1 /a /host rw\n3 1 8:1 /b /host rw\n4 1 8:1 /c /hostile rw\n");
        let id = |path: &str| holding(&mounts, Path::new(path)).unwrap().id;
        assert_eq!((id("/host/net.d"), id("/host"), id("/hostile/x"), id("/else")), (3, 3, 4, 1));
        assert_eq!(holding(&[], Path::new("/")), None);
    }

    #[test]
    fn a_moved_or_removed_directory_is_replaced_and_another_mount_is_not() {
        let held = held("36 1 8:1 /etc/net.d /host/net.d rw");
        let now =
            |line: &str| held.replaced(&Mount::parse(line.as_bytes()).unwrap(), (8, 5)).map(|found| found.to_string());
        assert_eq!(now("36 1 8:1 /etc/net.d /host/net.d ro"), None);
        let moved = now("36 1 8:1 /etc/old /host/net.d rw").unwrap();
        assert!(
            moved.starts_with("/host/net.d is the mount of") && moved.contains("/etc/net.d was moved to /etc/old"),
            "{moved}"
        );
        let removed = now("36 1 8:1 /etc/net.d//deleted /host/net.d rw").unwrap();
        assert!(removed.contains("/etc/net.d was removed;") && removed.contains("kubelet restarts"), "{removed}");
        assert_eq!(now("37 1 8:1 /etc/old /host/net.d rw"), None, "mounted again");
        assert_eq!(now("1 0 8:1 / / rw"), None, "unmounted");
        let other = Mount::parse(b"36 1 8:1 /etc/old /host/net.d rw").unwrap();
        assert_eq!(held.replaced(&other, (8, 6)), None, "the id is reused");
    }
}
