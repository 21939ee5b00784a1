//! Selects the file whose network gets the plugin's entry, as runtimes select their network. Pure.

use std::path::{Path, PathBuf};

use cni::Version;
use libcni::conflist::{
    Invalid, List, Network, Shim, decode_drop_in, drop_in_directory, is_read, paths, without_delegated,
};

use super::Obstacle;
use crate::install::operation::Operation;
use crate::install::read::Unread;
use crate::install::record::Record;
use crate::install::settings::{InstallSettings, OWNED};
use crate::install::snapshot::{NetworkFile, Snapshot};

/// A node's network configurations, for the settings of an installation.
pub(super) struct Node<'a> {
    pub(super) settings: &'a InstallSettings,
    pub(super) files: &'a [NetworkFile],
    pub(super) snapshot: &'a Snapshot,
}

/// The file whose network gets the plugin's entry, parsed.
pub(super) struct Primary<'a> {
    pub(super) file: &'a NetworkFile,
    pub(super) network: Network<'a>,
    /// Whether the operator has named the file.
    pub(super) named: bool,
    /// What may keep a runtime from using the file, such as files that sort before it.
    pub(super) hidden_by: Vec<Obstacle>,
    /// Problems that do not prevent readiness.
    pub(super) warnings: Vec<String>,
}

/// Why a file is not known to be a network of the node.
pub(super) enum Refusal {
    /// `libcni` refuses the file.
    Invalid(Invalid),
    /// This process cannot read the file, or the file of a drop-in plugin.
    Unread(Unread),
}

impl Refusal {
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Invalid(invalid) => invalid.to_string(),
            Self::Unread(unread) => unread.reason.clone(),
        }
    }
}

impl From<Invalid> for Refusal {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl<'a> Node<'a> {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.settings.net_dir.join(name)
    }

    pub(super) fn is_own(&self, file: &NetworkFile) -> bool {
        is_own(file, self.snapshot.record.as_ref())
    }

    pub(super) fn find(&self, name: &str) -> Option<&'a NetworkFile> {
        self.files.iter().find(|file| file.name == name)
    }

    /// Returns the first other file that makes Multus read the file `name` by its path.
    pub(super) fn naming(&self, name: &str) -> Option<&'a NetworkFile> {
        naming(self.settings, self.files, name)
    }

    /// Selects the file to chain into.
    pub(super) fn chained(&self, named: Option<&str>) -> Result<Primary<'a>, Obstacle> {
        let primary = match named {
            Some(name) => self.behind_earlier(self.named(name)?),
            None => self.behind_shim(self.first(None)?)?,
        };
        self.supported(primary)
    }

    /// Selects the file to copy, which is not the file `except`.
    pub(super) fn copied(&self, named: Option<&str>, except: &str) -> Result<Primary<'a>, Obstacle> {
        let primary = named.map_or_else(|| self.first(Some(except)), |name| self.named(name))?;
        self.supported(primary)
    }

    /// Returns the list that Multus' daemon reads at each ADD, if `first` is the daemon's own file, which cannot hold a chain: a
    /// list that replaced it would stay on the node when the daemon removes its file on exit, and no pod would start. `first` may
    /// also be such a list from a former version of this program. Returns `first` if the daemon's network cannot get the entry,
    /// because it is not a list or is in another directory, or if Multus searches plugins in another directory.
    fn behind_shim(&self, first: Primary<'a>) -> Result<Primary<'a>, Obstacle> {
        let Some(name) = self.read_by_shim(&first) else { return Ok(first) };
        // If its owner has written the converted file again, that file has the newer content.
        let former =
            self.originals().filter(|former| conflist_name(former) == name).find_map(|former| self.find(former));
        match former.or_else(|| self.find(&name)) {
            Some(file) => Ok(Primary { file, network: self.usable(file, self.judge(file))?, ..first }),
            None => Err(Obstacle::Absent { path: self.path(&name), by: self.path(&first.file.name) }),
        }
    }

    /// Returns the name of the list in this directory that Multus' daemon reads, if `first` is the daemon's file or was converted from it.
    pub(super) fn read_by_shim(&self, first: &Primary<'_>) -> Option<String> {
        let is_converted = || self.originals().any(|former| conflist_name(former) == first.file.name);
        let shim = Shim::of(&first.file.content)?;
        let is_of_daemon = matches!(first.network, Network::Single(_)) || is_converted();
        let name = self.settings.named_by(&shim.network).filter(|name| conflist_name(name) == **name)?;
        (is_of_daemon && self.settings.is_bin_dir(&shim.bin_dir)).then(|| name.to_owned())
    }

    /// Returns the names of the files that were converted to lists.
    fn originals(&self) -> impl Iterator<Item = &'a str> {
        self.snapshot.record.iter().flat_map(|record| record.originals.keys()).map(String::as_str)
    }

    /// Returns a selected file; fails unless the plugin supports the network's version.
    fn supported(&self, primary: Primary<'a>) -> Result<Primary<'a>, Obstacle> {
        let version = primary.network.version();
        if !version.is_empty() && Version::find(version).is_none() {
            return Err(Obstacle::Version { network: self.path(&primary.file.name), version: version.to_owned() });
        }
        self.searched(primary)
    }

    /// Returns a selected file; fails unless at least one of its other plugins is in a directory that the runtime searches, as
    /// evidence that the runtime searches the plugin directory, too. If others are missing, the runtime cannot use the network,
    /// unless it searches directories that are not known.
    fn searched(&self, mut primary: Primary<'a>) -> Result<Primary<'a>, Obstacle> {
        let Snapshot { plugins, searched, .. } = self.snapshot;
        let others = primary.network.other_plugins();
        let is_missing = |kind: &&&str| !plugins.contains(**kind) && !searched.contains(**kind);
        let missing: Vec<String> = others.iter().filter(is_missing).map(|kind| (*kind).to_owned()).collect();
        let (is_any_there, network) = (missing.len() < others.len(), self.path(&primary.file.name));
        let (searched, bin_dir) = (self.settings.of_runtime.bin_dirs.clone(), self.settings.bin_dir.clone());
        match (is_any_there, searched.is_empty()) {
            _ if missing.is_empty() => {}
            (false, true) => return Err(Obstacle::PluginsElsewhere { network, bin_dir, missing }),
            (false, false) => return Err(Obstacle::PluginsMissing { network, missing, searched }),
            (true, false) => primary.hidden_by.push(Obstacle::PluginsMissing { network, missing, searched }),
            (true, true) => primary.warnings.push(format!(
                "{} names {}, which is not in {}: unless the runtime searches further directories, CRI-O ignores the network and uses \
                 the next one, and containerd starts no pod",
                network.display(),
                missing.join(", "),
                bin_dir.display()
            )),
        }
        Ok(primary)
    }

    /// Returns the file that the operator has named. As in Istio, a list in a `.conf` is accepted here.
    fn named(&self, name: &str) -> Result<Primary<'a>, Obstacle> {
        let other = match name.rsplit_once('.') {
            Some((stem, "conf")) => format!("{stem}.conflist"),
            Some((stem, "conflist")) => format!("{stem}.conf"),
            _ => name.to_owned(),
        };
        let file = self.find(name).or_else(|| self.find(&other));
        let file = file.ok_or_else(|| Obstacle::NamedAbsent { path: self.path(name), present: self.present() })?;
        let judged = match name.ends_with(".conflist") {
            true => self.judge(file),
            false => self.judge_as(file, Network::parse),
        };
        Ok(Primary {
            file,
            network: self.usable(file, judged)?,
            named: true,
            hidden_by: Vec::new(),
            warnings: Vec::new(),
        })
    }

    /// Returns the network of a file that no other file can replace.
    fn usable(&self, file: &NetworkFile, judged: Result<Network<'a>, Refusal>) -> Result<Network<'a>, Obstacle> {
        match judged {
            Ok(network) if has_only_our_plugin(&network) => {
                let reason = format!("the file names no plugin but {}", contract::PLUGIN_NAME);
                Err(Obstacle::Unusable { path: self.path(&file.name), reason })
            }
            Ok(network) => Ok(network),
            Err(Refusal::Invalid(Invalid::Json(_))) if file.is_recent => {
                Err(Obstacle::HalfWritten { path: self.path(&file.name) })
            }
            Err(refusal) => Err(Obstacle::Unusable { path: self.path(&file.name), reason: refusal.reason() }),
        }
    }

    /// Returns the names of the files that runtimes read.
    fn present(&self) -> Vec<String> {
        self.files.iter().filter(|file| is_read(&file.name)).map(|file| file.name.clone()).collect()
    }

    /// Decodes a file as the runtime does, with its drop-in plugins.
    pub(super) fn judge(&self, file: &'a NetworkFile) -> Result<Network<'a>, Refusal> {
        self.judge_as(file, |content| Network::of_file(&file.name, content))
    }

    fn judge_as(
        &self,
        file: &'a NetworkFile,
        decode: impl Fn(&'a [u8]) -> Result<Network<'a>, Invalid>,
    ) -> Result<Network<'a>, Refusal> {
        if let Some(unread) = &file.unread {
            return Err(Refusal::Unread(unread.clone()));
        }
        let decoded = decode(&file.content);
        if !matches!(decoded, Ok(Network::List(_)) | Err(Invalid::DropInsOnly)) {
            return Ok(decoded?);
        }
        let has_drop_ins = self.has_drop_ins(file)?;
        match decoded {
            Err(Invalid::DropInsOnly) if !has_drop_ins => Err(Invalid::NoPlugins.into()),
            decoded => Ok(decoded?),
        }
    }

    /// Whether the runtime loads drop-in plugins of a list.
    fn has_drop_ins(&self, file: &NetworkFile) -> Result<bool, Refusal> {
        let directory = drop_in_directory(&file.content);
        let Some(read) = directory.and_then(|name| self.snapshot.drop_ins.get(&name)) else { return Ok(false) };
        let plugins = read.as_ref().map_err(|unread| {
            let reason = format!("its plugins: {unread}");
            Refusal::Unread(Unread { path: self.path(&file.name), reason, is_denied: unread.is_denied })
        })?;
        for plugin in plugins {
            decode_drop_in(&plugin.content).map_err(|reason| {
                let file = plugin.path.display().to_string();
                Invalid::DropIn { file, reason: Box::new(reason) }
            })?;
        }
        Ok(true)
    }
}

/// Returns the list of a file whose chain names the plugin.
pub(super) fn list_with_entry(file: &NetworkFile) -> Option<List<'_>> {
    match Network::of_file(&file.name, &file.content) {
        Ok(Network::List(list)) if list.entries().next().is_some() => Some(list),
        _ => None,
    }
}

/// Whether a network names no plugin but this one, so that it gives a pod no interface.
pub(super) fn has_only_our_plugin(network: &Network<'_>) -> bool {
    match network {
        Network::Single(single) => single.kind() == contract::PLUGIN_NAME,
        Network::List(list) => list.without_entry().is_none(),
    }
}

/// Returns the first other file that makes Multus read the file `name` by its path.
pub(super) fn naming<'f>(settings: &InstallSettings, files: &'f [NetworkFile], name: &str) -> Option<&'f NetworkFile> {
    files.iter().find(|file| file.name != name && reads(settings, &file.content, name))
}

/// Whether a configuration with this content makes Multus read the file `name` of the configuration directory by its path.
pub(super) fn reads(settings: &InstallSettings, content: &[u8], name: &str) -> bool {
    paths(content).iter().any(|path| settings.named_by(path) == Some(name))
}

/// Whether this program created the whole file. A copy of the default name is included even if no record names it, because some
/// versions of this program write copies without a record.
pub(super) fn is_own(file: &NetworkFile, record: Option<&Record>) -> bool {
    let has_default_name = || file.name == OWNED && list_with_entry(file).is_some();
    record.is_some_and(|record| record.files.contains(&file.name)) || is_own_single(file) || has_default_name()
}

pub(super) fn is_own_single(file: &NetworkFile) -> bool {
    Network::parse(&file.content)
        .is_ok_and(|network| matches!(network, Network::Single(_)) && has_only_our_plugin(&network))
}

/// Returns the file's name with the extension `.conflist`, under which runtimes expect a list.
pub(super) fn conflist_name(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((stem, "conf" | "json")) => format!("{stem}.conflist"),
        _ => name.to_owned(),
    }
}

/// Whether a file's network names the plugin.
pub(super) fn names_the_plugin(file: &NetworkFile) -> bool {
    list_with_entry(file).is_some() || is_own_single(file) || delegates_name_plugin(&file.content)
}

/// Whether Multus runs the plugin as part of a delegate.
pub(super) fn delegates_name_plugin(content: &[u8]) -> bool {
    without_delegated(content).is_some()
}

/// Returns a configuration without the plugin in Multus' delegates.
pub(super) fn bare(content: Vec<u8>) -> Vec<u8> {
    without_delegated(&content).unwrap_or(content)
}

/// Returns the operation that gives a file this content, or removes it.
pub(super) fn replaced(path: &Path, file: &NetworkFile, content: Option<Vec<u8>>) -> Operation {
    let (path, expected) = (path.to_owned(), Some(file.content.clone()));
    match content {
        Some(content) => Operation::Write { path, content, mode: file.mode, expected, source: None },
        None => Operation::Remove { path, expected, replaced_by: None },
    }
}
