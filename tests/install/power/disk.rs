//! A simulated file system that loses unsynced data in a power cut.
//!
//! It guarantees only what POSIX does: the content and mode of a file are on the disk after an fsync of the file, and
//! names after an fsync of their directory. Without an fsync, each change is on the disk or not, independently of all
//! others; content may be incomplete. ext4 and XFS guarantee more.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::calls::Call;

/// The content and the permission bits of a file.
pub(super) type Version = (Vec<u8>, u32);
/// Directories with the regular files in them.
pub(super) type Image = BTreeMap<PathBuf, BTreeMap<String, Version>>;

/// The permission bits of a created file before `fchmod`.
const CREATED: u32 = 0o600;
/// The maximum number of changes of one directory between two syncs. Each change doubles the number of possible states.
const MAX_PENDING: usize = 8;

struct File {
    now: Version,
    synced: Version,
}

#[derive(Clone)]
enum Change {
    Link(String, usize),
    Rename(String, String, usize),
    /// Two names, and the file that each of them has afterwards.
    Exchange([(String, usize); 2]),
    Unlink(String),
}

struct Directory {
    now: BTreeMap<String, usize>,
    synced: BTreeMap<String, usize>,
    pending: Vec<Change>,
    /// Whether the directory's name in its parent directory is on the disk.
    is_linked: bool,
}

pub(super) struct Disk {
    files: Vec<File>,
    directories: BTreeMap<PathBuf, Directory>,
    /// The directories that the model follows. It ignores all others.
    known: BTreeSet<PathBuf>,
}

impl Disk {
    /// Creates a disk on which programs see `now`, and of which only `synced` survives a power cut for certain. Names that are missing from
    /// `synced`, or have another version there, are pending changes.
    pub(super) fn new(known: &[PathBuf], synced: &Image, now: &Image) -> Self {
        let mut disk = Self { files: Vec::new(), directories: BTreeMap::new(), known: known.iter().cloned().collect() };
        for (path, names) in synced {
            let mut directory = Directory::new(true);
            directory.now = names.iter().map(|(name, version)| (name.clone(), disk.add(version))).collect();
            directory.synced = directory.now.clone();
            let now = &now[path];
            for (name, version) in now.iter().filter(|(name, version)| names.get(*name) != Some(version)) {
                directory.change(Change::Link(name.clone(), disk.add(version)));
            }
            for name in names.keys().filter(|name| !now.contains_key(*name)) {
                directory.change(Change::Unlink(name.clone()));
            }
            disk.directories.insert(path.clone(), directory);
        }
        disk
    }

    /// Adds a file whose content is synced, and returns its number.
    fn add(&mut self, version: &Version) -> usize {
        self.files.push(File { now: version.clone(), synced: version.clone() });
        self.files.len() - 1
    }

    /// Returns the files as programs see them before a power cut.
    pub(super) fn now(&self) -> Image {
        let version = |(name, file): (&String, &usize)| (name.clone(), self.files[*file].now.clone());
        let directory = |(path, dir): (&PathBuf, &Directory)| (path.clone(), dir.now.iter().map(version).collect());
        self.directories.iter().map(directory).collect()
    }

    /// Executes a call. Calls on other directories, and on files that are not regular, have no effect.
    pub(super) fn apply(&mut self, call: &Call) {
        match call {
            Call::Create(path) => self.create(path),
            Call::Append(path, data) => self.with_file(path, |file| file.now.0.extend_from_slice(data)),
            Call::Copy { from, to, length } => self.with_file(to, |file| {
                let (source, start) = (fs::read(from).unwrap(), file.now.0.len());
                file.now.0.extend_from_slice(&source[start..start + length]);
            }),
            Call::SetMode(path, mode) => self.with_file(path, |file| file.now.1 = *mode),
            Call::Rename(from, to) => self.rename(from, to),
            Call::Exchange(one, other) => self.exchange(one, other),
            Call::Unlink(path) => self.unlink(path),
            Call::MakeDirectory(path) if self.known.contains(path) => {
                self.directories.insert(path.clone(), Directory::new(false));
            }
            Call::MakeDirectory(_) => {}
            Call::Sync(path) => self.sync(path),
            Call::Other(name, path) => assert!(self.find(path).is_none(), "{name} {} is not modelled", path.display()),
        }
    }

    fn find(&self, path: &Path) -> Option<usize> {
        let directory = self.directories.get(path.parent()?)?;
        directory.now.get(path.file_name()?.to_str()?).copied()
    }

    fn with_file(&mut self, path: &Path, change: impl FnOnce(&mut File)) {
        if let Some(file) = self.find(path) {
            change(&mut self.files[file]);
        }
    }

    fn directory_of(&mut self, path: &Path) -> Option<(&mut Directory, String)> {
        let directory = self.directories.get_mut(path.parent()?)?;
        Some((directory, path.file_name()?.to_str()?.to_owned()))
    }

    fn create(&mut self, path: &Path) {
        let file = self.files.len();
        if self.find(path).is_some() {
            return;
        }
        let Some((directory, name)) = self.directory_of(path) else { return };
        directory.change(Change::Link(name, file));
        self.files.push(File { now: (Vec::new(), CREATED), synced: (Vec::new(), CREATED) });
    }

    fn rename(&mut self, from: &Path, to: &Path) {
        let Some(file) = self.find(from) else { return };
        assert_eq!(from.parent(), to.parent(), "a rename between directories is not modelled");
        let Some((directory, name)) = self.directory_of(from) else { return };
        let target = to.file_name().unwrap().to_str().unwrap().to_owned();
        directory.change(Change::Rename(name, target, file));
    }

    fn exchange(&mut self, one: &Path, other: &Path) {
        let (Some(first), Some(second)) = (self.find(one), self.find(other)) else { return };
        let target = other.file_name().unwrap().to_str().unwrap().to_owned();
        let Some((directory, name)) = self.directory_of(one) else { return };
        directory.change(Change::Exchange([(name, second), (target, first)]));
    }

    fn unlink(&mut self, path: &Path) {
        if self.find(path).is_none() {
            return;
        }
        let Some((directory, name)) = self.directory_of(path) else { return };
        directory.change(Change::Unlink(name));
    }

    fn sync(&mut self, path: &Path) {
        self.with_file(path, |file| file.synced = file.now.clone());
        if let Some(directory) = self.directories.get_mut(path) {
            directory.synced = directory.now.clone();
            directory.pending.clear();
        }
        for (child, directory) in &mut self.directories {
            directory.is_linked |= child.parent() == Some(path);
        }
    }

    /// Returns every state in which the disk may be if the power is cut now.
    pub(super) fn images(&self) -> Vec<Image> {
        let mut images = vec![Image::new()];
        for (path, directory) in &self.directories {
            let states = self.states(directory);
            let mut next = Vec::new();
            for image in images {
                if !directory.is_linked {
                    next.push(image.clone());
                }
                next.extend(states.iter().map(|state| {
                    let mut image = image.clone();
                    image.insert(path.clone(), state.clone());
                    image
                }));
            }
            images = next;
        }
        images
    }

    /// Returns every possible state of a directory: every subset of the pending changes, with every version of each
    /// file.
    fn states(&self, directory: &Directory) -> BTreeSet<BTreeMap<String, Version>> {
        assert!(directory.pending.len() <= MAX_PENDING, "{} changes without a sync", directory.pending.len());
        let mut states = BTreeSet::new();
        for subset in 0..1_usize << directory.pending.len() {
            let mut names = directory.synced.clone();
            let changes = directory.pending.iter().enumerate().filter(|(at, _)| subset >> at & 1 == 1);
            changes.for_each(|(_, change)| change.apply(&mut names));
            let mut some = vec![BTreeMap::new()];
            for (name, file) in names {
                let versions = self.files[file].versions();
                let with = |state: &BTreeMap<_, _>, version: &Version| {
                    let mut state = state.clone();
                    state.insert(name.clone(), version.clone());
                    state
                };
                some = some.iter().flat_map(|state| versions.iter().map(|version| with(state, version))).collect();
            }
            states.extend(some);
        }
        states
    }
}

impl Directory {
    fn new(is_linked: bool) -> Self {
        Self { now: BTreeMap::new(), synced: BTreeMap::new(), pending: Vec::new(), is_linked }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.pending.push(change);
    }
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Link(name, file) => drop(names.insert(name.clone(), *file)),
            Self::Rename(from, to, file) => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
            Self::Exchange(files) => names.extend(files.iter().cloned()),
            Self::Unlink(name) => drop(names.remove(name)),
        }
    }
}

impl File {
    /// Returns the versions of a file that may be on the disk: the synced version; the current version with its content
    /// complete, empty, or with zeros in the second half; and the current content with the synced mode.
    fn versions(&self) -> Vec<Version> {
        if self.now == self.synced {
            return vec![self.now.clone()];
        }
        let (content, mode) = &self.now;
        let mut torn = content.clone();
        torn[content.len() / 2..].fill(0);
        let mut versions = vec![self.synced.clone(), (Vec::new(), *mode), (torn, *mode), self.now.clone()];
        versions.push((content.clone(), self.synced.1));
        versions.sort();
        versions.dedup();
        versions
    }
}

/// Reads the regular files of the directories that exist.
pub(super) fn read(directories: &[PathBuf]) -> Image {
    let mut image = Image::new();
    for path in directories.iter().filter(|path| path.is_dir()) {
        let files = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        let version =
            |path: &PathBuf| (fs::read(path).unwrap(), fs::metadata(path).unwrap().permissions().mode() & 0o7777);
        let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        image.insert(path.clone(), files.map(|path| (name(&path), version(&path))).collect());
    }
    image
}

/// Replaces the content of the directories by an image.
pub(super) fn restore(directories: &[PathBuf], image: &Image) {
    for path in directories {
        // Removes only directories that the image lacks; the others keep their inodes.
        if !image.contains_key(path) && path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        }
        for file in path.read_dir().into_iter().flatten() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
    }
    for (path, names) in image {
        fs::create_dir_all(path).unwrap();
        for (name, (content, mode)) in names {
            let file = path.join(name);
            fs::write(&file, content).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(*mode)).unwrap();
        }
    }
}
