//! Reads the state of the node's directories.
//!
//! `reconcile` and `remove` take a snapshot before each plan. The sizes of files are limited, and errors are part of the
//! snapshot.
#![expect(clippy::disallowed_methods, reason = "reads the node's directories")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use libcni::conflist::{self, is_read};

use super::directories::Directories;
use super::executable;
use super::identity::NoAccount;
use super::installed::{self, Illegible, Installed};
use super::kubeconfig::Account;
use super::read::{
    MAX_CONFIGURATION, Unread, access_mode, limited, network_file, record_file, regular, too_large, unread,
};
use super::record::{self, Record};
use super::server::Resolution;
use super::set_aside::{self, SetAside};
use super::settings::{InstallSettings, Mode};
use super::temporary::is_stale;

/// The number of bytes of two binaries that are compared at a time.
const CHUNK: usize = 64 << 10;
/// The age below which a file may be incomplete, and below which a further change may leave its timestamps unchanged.
const RECENT: Duration = Duration::from_secs(2);

/// The observed state of the node.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Configuration files in the runtime's order, with those that cannot be read.
    pub networks: Result<Vec<NetworkFile>, Unread>,
    /// Configurations under names that no runtime reads.
    pub set_aside: Vec<SetAside>,
    /// The record of the files that this program created.
    pub record: Option<Record>,
    /// The drop-in plugins of lists, by the name of the list. Lists without drop-in plugins are missing.
    pub drop_ins: BTreeMap<String, Result<Vec<DropIn>, Unread>>,
    /// Names of the files and links in the node's plugin directory.
    pub plugins: BTreeSet<String>,
    /// The same names in all directories that the runtime searches, if those are known.
    pub searched: BTreeSet<String>,
    /// The image's programs, compared with those on the node.
    pub binaries: Result<Vec<Binary>, Unread>,
    pub account: Result<Account, NoAccount>,
    /// The address of the API server.
    pub server: Resolution,
    /// The plugin's kubeconfig and its access mode.
    pub kubeconfig: Option<(Vec<u8>, u32)>,
    /// The directories of the settings; `None` if one is missing.
    pub directories: Option<Directories>,
    /// The record of the directories in which agents have installed the plugin.
    pub installed: Result<Installed, Illegible>,
    /// Temporary files whose writer has ended.
    pub stale: Vec<PathBuf>,
}

/// A configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkFile {
    pub name: String,
    pub content: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Whether the file was changed less than two seconds ago, so that it may be incomplete.
    pub is_recent: bool,
    /// Why this process cannot read the file, whose content is then empty. The runtime may be able to: it resolves links in the
    /// node's root, and has other rights.
    pub unread: Option<Unread>,
}

/// The file of a drop-in plugin, in the directory named after its list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropIn {
    pub path: PathBuf,
    pub content: Vec<u8>,
}

/// A program in the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binary {
    pub name: String,
    /// Permission bits in the image.
    pub mode: u32,
    pub state: BinaryState,
}

/// The state of the node's file with a program's name, compared with the image's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinaryState {
    Missing,
    /// The file cannot be executed, for example because it is a directory or truncated.
    Unusable,
    /// Another version.
    Different,
    Same,
}

/// The programs that an earlier snapshot found to be equal on the node and in the image, by their paths on the node.
/// Their contents are compared again only after either file has changed: to read megabytes in each pass would delay the
/// repair of a chain.
#[derive(Debug, Default)]
pub struct CompareCache(BTreeMap<PathBuf, [Stamp; 2]>);

/// Device, inode, size and `ctime` of a file. No program can set the `ctime`.
type Stamp = (u64, u64, u64, (i64, i64));

impl Snapshot {
    /// Reads the files that `settings` name, without resolving the API server's host name.
    pub fn take(settings: &InstallSettings) -> Self {
        Self::take_with(settings, settings.kubeconfig.server.without_lookup(), &mut CompareCache::default())
    }

    /// Like [`take`](Self::take), with the address of the API server and the comparisons of earlier snapshots.
    pub fn take_with(settings: &InstallSettings, server: Resolution, compared: &mut CompareCache) -> Self {
        let (networks, record) = configuration(settings);
        let drop_ins = drop_ins(&settings.net_dir, networks.iter().flatten());
        let kubeconfig = settings.run_dir.join(contract::KUBECONFIG);
        let dirs = [&settings.bin_dir, &settings.net_dir, &settings.run_dir];
        Self {
            networks,
            set_aside: set_aside::read(&settings.net_dir),
            record,
            drop_ins,
            plugins: file_names(&settings.bin_dir),
            searched: settings.of_runtime.bin_dirs.iter().flat_map(|dir| file_names(dir)).collect(),
            binaries: binaries(settings, compared),
            account: account(settings).map_err(NoAccount::from),
            server,
            kubeconfig: regular(&kubeconfig).ok().zip(access_mode(&kubeconfig).ok()),
            directories: Directories::of(settings, None).ok(),
            installed: installed(&settings.run_dir.join(installed::FILE)),
            stale: dirs.into_iter().flat_map(|dir| stale_temporaries(dir)).collect(),
        }
    }
}

impl Snapshot {
    /// Returns the recorded directories of other agents, whose chains may name the plugin; empty if a directory of this agent is missing.
    pub(super) fn others(&self) -> Installed {
        self.directories.as_ref().map_or_else(Installed::default, |own| self.recorded().except(own))
    }

    /// Whether a removal has left the plugin as a stub.
    pub(super) fn has_stub(&self) -> bool {
        self.plugins.contains(contract::REMOVED_MARKER)
    }

    /// Returns warnings about files that could not be read and are not needed for an installation.
    pub(super) fn warnings(&self) -> Vec<String> {
        let record = self.installed.as_ref().err().map(ToString::to_string);
        let unread = self.networks.iter().flatten().filter_map(|file| file.unread.as_ref());
        record.into_iter().chain(unread.map(ToString::to_string)).collect()
    }

    /// Returns the record of installations; empty if it is illegible.
    pub(super) fn recorded(&self) -> Installed {
        self.installed.clone().unwrap_or_default()
    }
}

/// Reads the record of installations, which does not exist before the first one.
fn installed(path: &Path) -> Result<Installed, Illegible> {
    match regular(path) {
        Ok(content) => Installed::parse(&content, path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Installed::default()),
        Err(error) => Err(Illegible::File(unread(path)(error))),
    }
}

/// Reads the configuration files in the runtime's order, and the record of those that this program created.
pub fn configuration(settings: &InstallSettings) -> (Result<Vec<NetworkFile>, Unread>, Option<Record>) {
    let record = record_file(&settings.net_dir.join(record::FILE)).ok().map(|content| Record::parse(&content));
    (networks(settings, record.as_ref()).map_err(unread(&settings.net_dir)), record)
}

fn networks(settings: &InstallSettings, record: Option<&Record>) -> io::Result<Vec<NetworkFile>> {
    let named = match &settings.mode {
        Mode::Chained { primary } => [primary.as_deref(), None],
        Mode::Owned { primary, file } => [primary.as_deref(), Some(file.as_str())],
        Mode::Standalone { file } => [Some(file.as_str()), None],
    };
    let is_named = |name: &str| named.contains(&Some(name)) || record.is_some_and(|record| record.names(name));
    let mut entries = fs::read_dir(&settings.net_dir)?.collect::<Result<Vec<_>, _>>()?;
    // The order of bytes, as in Go.
    entries.sort_by_cached_key(fs::DirEntry::file_name);
    // Runtimes ignore directories, and read what links lead to.
    let files = entries.into_iter().filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_dir()));
    Ok(files.filter_map(|file| network(&file.path(), &is_named)).collect())
}

/// Reads a configuration file that runtimes read, or that `is_named`; `None` if it is another file, or was removed meanwhile.
fn network(path: &Path, is_named: &impl Fn(&str) -> bool) -> Option<NetworkFile> {
    let given = path.file_name()?;
    let name = given.to_string_lossy().into_owned();
    if !(is_read(&name) || is_named(&name)) {
        return None;
    }
    let read = match given.to_str() {
        Some(_) => network_file(path).and_then(|content| Ok((content, fs::metadata(path)?))),
        None => Err(io::Error::other("its name is not UTF-8")),
    };
    match read {
        Ok((content, metadata)) => {
            let mode = metadata.permissions().mode() & 0o7777;
            let age = metadata.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
            Some(NetworkFile { name, content, mode, is_recent: age.is_some_and(|age| age < RECENT), unread: None })
        }
        // A dangling link: its target may exist on the node.
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => None,
        Err(error) => {
            let unread = Some(unread(path)(error));
            Some(NetworkFile { name, content: Vec::new(), mode: 0o600, is_recent: false, unread })
        }
    }
}

/// Reads the drop-in plugins of each list.
fn drop_ins<'f>(
    dir: &Path,
    files: impl Iterator<Item = &'f NetworkFile>,
) -> BTreeMap<String, Result<Vec<DropIn>, Unread>> {
    let names = files.filter_map(|file| conflist::drop_in_directory(&file.content));
    let read = names.map(|name| {
        let read = drop_ins_of(dir, &name);
        (name, read)
    });
    read.filter(|(_, read)| read.as_ref().map_or(true, |files| !files.is_empty())).collect()
}

/// Reads the drop-in plugins of a list, as `libcni` does: a missing directory has none.
fn drop_ins_of(dir: &Path, network: &str) -> Result<Vec<DropIn>, Unread> {
    let path = below(dir, network)?;
    let entries = match fs::read_dir(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(unread(&path))?,
    };
    let (mut files, mut size) = (Vec::new(), 0);
    for entry in entries {
        let path = entry.path();
        let is_file = !entry.file_type().map_err(unread(&path))?.is_dir();
        if is_file && entry.file_name().as_encoded_bytes().ends_with(b".conf") {
            let content = network_file(&path).map_err(unread(&path))?;
            size += content.len() as u64;
            if size > MAX_CONFIGURATION {
                return Err(unread(&path)(too_large(MAX_CONFIGURATION)));
            }
            files.push(DropIn { path, content });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Returns the directory named after a network, which Go joins to `dir` as a string. Fails if it is outside of `dir`, which this
/// container does not mount.
fn below(dir: &Path, network: &str) -> Result<PathBuf, Unread> {
    let mut parts = Vec::new();
    for part in network.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_some() => {}
            ".." => {
                let reason = "the agent does not mount this directory".to_owned();
                return Err(Unread { path: dir.join(network), reason, is_denied: false });
            }
            part => parts.push(part),
        }
    }
    Ok(parts.into_iter().fold(dir.to_owned(), |path, part| path.join(part)))
}

/// Returns the names of the files in a directory; none if the directory cannot be read, because the runtime could not execute files
/// in it either.
fn file_names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    // Links are not followed: their targets are paths of the node, not of this container.
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_dir()));
    files.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn binaries(settings: &InstallSettings, compared: &mut CompareCache) -> Result<Vec<Binary>, Unread> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(&settings.bin_source).map_err(unread(&settings.bin_source))? {
        let path = entry.map_err(unread(&settings.bin_source))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if !path.is_file() {
            continue;
        }
        let installed = settings.bin_dir.join(name);
        let mode = access_mode(&path).map_err(unread(&path))?;
        let state = match compared.state(&path, &installed, mode) {
            Ok(state) => state,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BinaryState::Missing,
            Err(error) => return Err(unread(&installed)(error)),
        };
        found.insert(name.to_owned(), Binary { name: name.to_owned(), mode, state });
    }
    if found.contains_key(contract::PLUGIN_NAME) {
        return Ok(found.into_values().collect());
    }
    let path = settings.bin_source.join(contract::PLUGIN_NAME);
    Err(Unread { path, reason: "the image holds no plugin".to_owned(), is_denied: false })
}

impl CompareCache {
    /// Returns the state of the existing file `installed`.
    fn state(&mut self, source: &Path, installed: &Path, mode: u32) -> io::Result<BinaryState> {
        if self.are_same(source, installed, mode)? {
            return Ok(BinaryState::Same);
        }
        let may_run = executable::may_run(installed, source)?;
        Ok(if may_run { BinaryState::Different } else { BinaryState::Unusable })
    }

    /// Whether `installed` has the bytes of `source`, and these permission bits.
    fn are_same(&mut self, source: &Path, installed: &Path, mode: u32) -> io::Result<bool> {
        if !fs::metadata(installed)?.is_file() {
            return Ok(false);
        }
        let pair = [File::open(installed)?, File::open(source)?];
        let [on_node, in_image] = [pair[0].metadata()?, pair[1].metadata()?];
        if on_node.len() != in_image.len() || on_node.permissions().mode() & 0o7777 != mode {
            return Ok(false);
        }
        let stamps = [stamp(&on_node), stamp(&in_image)];
        if self.0.get(installed) == Some(&stamps) {
            return Ok(true);
        }
        let same = equal(pair, in_image.len())?;
        if same && [on_node, in_image].iter().all(has_stable_ctime) {
            self.0.insert(installed.to_owned(), stamps);
        }
        Ok(same)
    }
}

fn stamp(file: &Metadata) -> Stamp {
    (file.dev(), file.ino(), file.len(), (file.ctime(), file.ctime_nsec()))
}

/// Whether any later change of the file would also change its `ctime`. File timestamps have the resolution of the timer
/// tick, so two changes in quick succession may have the same one.
fn has_stable_ctime(file: &Metadata) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(file.ctime()).is_ok_and(|changed| changed + RECENT.as_secs() < now.as_secs())
}

/// Whether two files of this size have the same bytes.
fn equal(mut pair: [File; 2], size: u64) -> io::Result<bool> {
    let mut chunks = [vec![0; CHUNK], vec![0; CHUNK]];
    let mut left = size;
    while left > 0 {
        let size = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        for (file, chunk) in pair.iter_mut().zip(&mut chunks) {
            file.read_exact(&mut chunk[..size])?;
        }
        if chunks[0][..size] != chunks[1][..size] {
            return Ok(false);
        }
        left -= size as u64;
    }
    Ok(true)
}

fn account(settings: &InstallSettings) -> Result<Account, Unread> {
    let path = settings.account_dir.join("token");
    let token = limited(&path).map_err(unread(&path))?;
    let token = String::from_utf8_lossy(&token).trim().to_owned();
    if token.is_empty() || token.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(Unread { path, reason: "it holds no token".to_owned(), is_denied: false });
    }
    if settings.kubeconfig.skip_verify {
        return Ok(Account { token, ca: None });
    }
    let path = settings.kubeconfig.ca_file.clone().unwrap_or_else(|| settings.account_dir.join("ca.crt"));
    let ca = limited(&path).map_err(unread(&path))?;
    Ok(Account { token, ca: Some(ca) })
}

fn stale_temporaries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| is_stale(path)).collect()
}
