//! Plans the edits of network configurations: selects the file and derives its new content. Pure.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Obstacle, Plan, Reason, Step, remove};
use crate::contract;
use crate::install::conflist::{Invalid, List, Network, list_name, same_value};
use crate::install::operation::{Operation, Source};
use crate::install::record::{self, Record};
use crate::install::settings::{Mode, OWNED, Settings};
use crate::install::snapshot::{NetworkFile, Snapshot, is_read};

/// Adds the steps after which the node's network names the plugin.
pub(super) fn install(plan: &mut Plan, settings: &Settings, files: &[NetworkFile], snapshot: &Snapshot) {
    let node = Node { settings, files, snapshot };
    let first = plan.steps.len();
    let done = match &settings.mode {
        Mode::Standalone { file } => node.standalone(plan, file),
        Mode::Chained { primary } => {
            node.primary(primary.as_deref(), None).and_then(|found| node.chain_in_place(plan, &found))
        }
        Mode::Owned { primary, file } => {
            node.primary(primary.as_deref(), Some(file)).and_then(|found| node.chain_copy(plan, &found, file))
        }
    };
    match done {
        Ok(target) => {
            node.remove_former(plan, &target);
            // The record comes first, so that it names all files if the agent is killed after any step.
            plan.steps.splice(first..first, node.record(&target));
        }
        Err(obstacle) => plan.obstacles.push(obstacle),
    }
}

/// Adds the steps after which no configuration names the plugin, for all modes of installation.
pub(super) fn removal(plan: &mut Plan, settings: &Settings, files: &[NetworkFile], record: Option<&Record>) {
    // A copy sorts before the list that it was made of. It is removed after the list's entry, because the runtime uses
    // the list as soon as the copy is removed.
    let (own, others): (Vec<_>, Vec<_>) = files.iter().partition(|file| {
        let named = matches!(&settings.mode, Mode::Owned { file: owned, .. } if *owned == file.name);
        (named && list_with_entry(file).is_some()) || is_own(file, record)
    });
    for file in others {
        if let Some(list) = list_with_entry(file) {
            plan.step(Reason::Removal, without_entry(&settings.net_dir.join(&file.name), file, &list));
        }
    }
    for file in own {
        plan.step(Reason::Removal, remove(settings.net_dir.join(&file.name)));
    }
}

/// The network that the container runtime gives to pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodNetwork {
    pub path: PathBuf,
    /// The types of the network's plugins, without `istio-cni`.
    pub others: Vec<String>,
    /// Whether any configuration of the node names `istio-cni`.
    pub names_the_plugin: bool,
}

/// Selects the network as an installation does.
///
/// # Errors
/// The obstacle to an installation.
pub fn pod_network(settings: &Settings, snapshot: &Snapshot) -> Result<PodNetwork, Obstacle> {
    let files = snapshot.networks.as_ref().map_err(Clone::clone)?;
    let names_the_plugin = files.iter().any(names_the_plugin);
    let node = Node { settings, files, snapshot };
    let (named, except) = match &settings.mode {
        Mode::Standalone { file } => {
            return Ok(PodNetwork { path: node.path(file), others: Vec::new(), names_the_plugin });
        }
        Mode::Chained { primary } => (primary, None),
        Mode::Owned { primary, file } => (primary, Some(file.as_str())),
    };
    let found = node.primary(named.as_deref(), except)?;
    let others = found.network.other_plugins().into_iter().map(str::to_owned).collect();
    Ok(PodNetwork { path: node.path(&found.file.name), others, names_the_plugin })
}

struct Node<'a> {
    settings: &'a Settings,
    files: &'a [NetworkFile],
    snapshot: &'a Snapshot,
}

/// The file whose network gets the plugin's entry, parsed.
struct Primary<'a> {
    file: &'a NetworkFile,
    network: Network<'a>,
    /// Whether the operator has named the file.
    named: bool,
}

impl<'a> Node<'a> {
    fn path(&self, name: &str) -> PathBuf {
        self.settings.net_dir.join(name)
    }

    fn find(&self, name: &str) -> Option<&'a NetworkFile> {
        self.files.iter().find(|file| file.name == name)
    }

    /// Selects the file to chain into. At least one of its other plugins must be in the plugin directory, as evidence that the
    /// runtime searches it; the others may be in further directories.
    fn primary(&self, named: Option<&str>, except: Option<&str>) -> Result<Primary<'a>, Obstacle> {
        let primary = named.map_or_else(|| self.first(except), |name| self.named(name))?;
        let others = primary.network.other_plugins();
        if others.is_empty() || others.iter().any(|kind| self.snapshot.plugins.contains(*kind)) {
            return Ok(primary);
        }
        let missing = others.into_iter().map(str::to_owned).collect();
        let (network, bin_dir) = (self.path(&primary.file.name), self.settings.bin_dir.clone());
        Err(Obstacle::PluginsElsewhere { network, bin_dir, missing })
    }

    /// The first file that the runtime would load.
    fn first(&self, except: Option<&str>) -> Result<Primary<'a>, Obstacle> {
        let mut ignored = Vec::new();
        let is_candidate = |file: &&NetworkFile| Some(file.name.as_str()) != except && !self.is_own(file);
        for file in self.files.iter().filter(is_candidate) {
            match self.parse(file) {
                Ok(network) if has_only_our_plugin(&network) => {}
                Ok(network) => return Ok(Primary { file, network, named: false }),
                // The file may be incomplete. The runtime will use it once its writer has finished, so no later file is
                // selected.
                Err(Invalid::Json(_)) if file.is_recent => {
                    return Err(Obstacle::HalfWritten { path: self.path(&file.name) });
                }
                Err(Invalid::DropInsOnly) if self.has_drop_ins(file) => {
                    let reason = Invalid::DropInsOnly.to_string();
                    return Err(Obstacle::Unusable { path: self.path(&file.name), reason });
                }
                Err(reason) => ignored.push((file.name.clone(), self.snapshot.reason(file, &reason))),
            }
        }
        Err(Obstacle::NoNetwork { dir: self.settings.net_dir.clone(), ignored })
    }

    /// The file that the operator has named.
    fn named(&self, name: &str) -> Result<Primary<'a>, Obstacle> {
        let other = match name.rsplit_once('.') {
            Some((stem, "conf")) => format!("{stem}.conflist"),
            Some((stem, "conflist")) => format!("{stem}.conf"),
            _ => name.to_owned(),
        };
        let file = self.find(name).or_else(|| self.find(&other));
        let file = file.ok_or_else(|| Obstacle::NamedAbsent { path: self.path(name) })?;
        match self.parse(file) {
            Ok(network) if has_only_our_plugin(&network) => {
                let reason = format!("the file names no plugin but {}", contract::PLUGIN_NAME);
                Err(Obstacle::Unusable { path: self.path(&file.name), reason })
            }
            Ok(network) => Ok(Primary { file, network, named: true }),
            Err(Invalid::Json(_)) if file.is_recent => Err(Obstacle::HalfWritten { path: self.path(&file.name) }),
            Err(e) => Err(Obstacle::Unusable { path: self.path(&file.name), reason: self.snapshot.reason(file, &e) }),
        }
    }

    /// Parses a file. Runtimes expect a list in every `.conflist`, whatever its content.
    fn parse(&self, file: &'a NetworkFile) -> Result<Network<'a>, Invalid> {
        let network = Network::parse(&file.content)?;
        match network {
            Network::Single(_) if file.name.ends_with(".conflist") => Err(Invalid::NoPlugins),
            network => Ok(network),
        }
    }

    fn has_drop_ins(&self, file: &NetworkFile) -> bool {
        list_name(&file.content).is_some_and(|name| self.snapshot.drop_ins.contains(&name))
    }

    /// Adds the entry to the primary file's network; returns the name of the resulting file.
    fn chain_in_place(&self, plan: &mut Plan, primary: &Primary<'a>) -> Result<String, Obstacle> {
        let Primary { file, network, .. } = primary;
        let entry = self.settings.entry.chained();
        let target = conflist_name(&file.name);
        plan.network = Some(self.path(&target));
        match network {
            Network::List(list) => {
                if let Some(reason) = entry_deviation(list, &entry) {
                    self.write(plan, reason, &target, list.with_entry(&entry), file.mode, Some(file));
                    self.remove_converted(plan, file, &target);
                }
            }
            Network::Single(single) => {
                let text = single.chained(&entry);
                let existing = self.find(&target).filter(|existing| existing.name != file.name);
                match existing {
                    Some(existing) if list_with_entry(existing).is_none() && !is_without_entry(existing, &text) => {
                        let (conf, list) = (self.path(&file.name), self.path(&target));
                        return Err(Obstacle::Shadowed { conf, list });
                    }
                    Some(existing) if existing.content == text.as_bytes() => {}
                    _ => self.write(plan, Reason::EntryMissing, &target, text, file.mode, Some(file)),
                }
                self.remove_converted(plan, file, &target);
            }
        }
        Ok(target)
    }

    /// Removes the file of a single plugin that has been converted to a list: the runtime would load that file first.
    fn remove_converted(&self, plan: &mut Plan, file: &NetworkFile, target: &str) {
        if file.name != target {
            let (path, expected) = (self.path(&file.name), Some(file.content.clone()));
            plan.step(Reason::Converted, Operation::Remove { path, expected });
        }
    }

    /// Adds the entry to a copy of the primary file's network.
    fn chain_copy(&self, plan: &mut Plan, primary: &Primary<'a>, owned: &str) -> Result<String, Obstacle> {
        let entry = self.settings.entry.chained();
        let text = match &primary.network {
            Network::List(list) => list.with_entry(&entry),
            Network::Single(single) => single.chained(&entry),
        };
        let existing = self.find_own(owned)?;
        plan.network = Some(self.path(owned));
        let is_foreign = |file: &&NetworkFile| file.name != owned && !self.is_own(file);
        let first = self.files.iter().filter(is_foreign).find(|file| self.parse(file).is_ok());
        if let Some(first) = first.filter(|first| first.name.as_str() < owned) {
            let (first, owned_path) = (self.path(&first.name), self.path(owned));
            let obstacle = Obstacle::Preempted { first, owned: owned_path };
            if !primary.named {
                return Err(obstacle);
            }
            plan.warnings.push(obstacle.to_string());
        }
        match existing {
            Some(existing) if existing.content == text.as_bytes() => {}
            Some(existing) => self.write(plan, Reason::EntryDiffers, owned, text, existing.mode, Some(primary.file)),
            None => self.write(plan, Reason::EntryMissing, owned, text, self.settings.conf_mode, Some(primary.file)),
        }
        Ok(owned.to_owned())
    }

    /// Returns the existing file of this name. It is an error if the file is neither recorded nor names the plugin: the
    /// file then belongs to another program, and an installation would overwrite it, and a later removal would delete
    /// it.
    fn find_own(&self, name: &str) -> Result<Option<&'a NetworkFile>, Obstacle> {
        match self.find(name) {
            Some(existing) if !self.is_own(existing) && list_with_entry(existing).is_none() => {
                Err(Obstacle::Foreign { path: self.path(name) })
            }
            existing => Ok(existing),
        }
    }

    fn standalone(&self, plan: &mut Plan, file: &str) -> Result<String, Obstacle> {
        let existing = self.find_own(file)?;
        let text = self.settings.entry.standalone();
        plan.network = Some(self.path(file));
        match existing {
            None => self.write(plan, Reason::EntryMissing, file, text, self.settings.conf_mode, None),
            Some(existing)
                if std::str::from_utf8(&existing.content).is_ok_and(|existing| same_value(existing, &text)) => {}
            Some(existing) => self.write(plan, Reason::EntryDiffers, file, text, existing.mode, None),
        }
        Ok(file.to_owned())
    }

    /// Removes files of a former mode, and the entry from chains that the runtime no longer uses, lest the plugin run twice for
    /// a pod. These steps follow the edit of `target`, so that the chain that the runtime uses always has the entry.
    fn remove_former(&self, plan: &mut Plan, target: &str) {
        for file in self.files.iter().filter(|file| file.name != target) {
            // The file from which `target` was converted is removed by `remove_converted`, now or in a later plan.
            if conflist_name(&file.name) == target && !self.is_own(file) {
                continue;
            }
            if self.is_own(file) {
                plan.step(Reason::LeftBehind, remove(self.path(&file.name)));
            } else if let Some(list) = list_with_entry(file) {
                plan.step(Reason::LeftBehind, without_entry(&self.path(&file.name), file, &list));
            }
        }
    }

    fn is_own(&self, file: &NetworkFile) -> bool {
        is_own(file, self.snapshot.record.as_ref())
    }

    /// The step that updates the record to the existing and the planned files, if it differs.
    fn record(&self, target: &str) -> Option<Step> {
        let recorded = self.snapshot.record.clone().unwrap_or_default();
        let mut record = recorded.clone();
        record.files.retain(|name| self.find(name).is_some());
        record.chains.retain(|name| self.find(name).is_some_and(|file| list_with_entry(file).is_some()));
        match &self.settings.mode {
            Mode::Owned { file, .. } | Mode::Standalone { file } => drop(record.files.insert(file.clone())),
            Mode::Chained { .. } if is_read(target) => {}
            Mode::Chained { .. } => drop(record.chains.insert(target.to_owned())),
        }
        let path = self.path(record::FILE);
        let operation = match record.is_empty() {
            _ if record == recorded => return None,
            true => remove(path),
            false => Operation::Write { path, content: record.text(), mode: 0o600, expected: None, source: None },
        };
        Some(Step { operation, reason: Reason::Recorded })
    }

    fn write(
        &self,
        plan: &mut Plan,
        reason: Reason,
        name: &str,
        text: String,
        mode: u32,
        source: Option<&NetworkFile>,
    ) {
        let expected = self.find(name).map(|existing| existing.content.clone());
        let source = source.filter(|source| source.name != name);
        let source = source.map(|file| Source { path: self.path(&file.name), content: file.content.clone() });
        let (path, content) = (self.path(name), text.into_bytes());
        plan.step(reason, Operation::Write { path, content, mode, expected, source });
    }
}

/// The difference between a list's entries of the plugin and `entry`.
fn entry_deviation(list: &List<'_>, entry: &str) -> Option<Reason> {
    let mut entries = list.entries();
    match (entries.next(), entries.next()) {
        (None, _) => Some(Reason::EntryMissing),
        (Some(existing), None) if same_value(existing.get(), entry) => None,
        _ => Some(Reason::EntryDiffers),
    }
}

/// The file's name with the extension `.conflist`, under which runtimes expect a list.
fn conflist_name(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((stem, "conf" | "json")) => format!("{stem}.conflist"),
        _ => name.to_owned(),
    }
}

/// Whether a file's network names the plugin.
pub(super) fn names_the_plugin(file: &NetworkFile) -> bool {
    list_with_entry(file).is_some() || is_own_single(file)
}

/// Whether a runtime that searches only the directory of `plugins` may run this network: the directory holds all other plugins
/// of it. The network need not name this plugin: its owner may have rewritten it, and the next agent adds the entry again. A
/// file that is not a network, such as an unreadable, empty or incomplete one, may become any network.
pub(super) fn may_run_from(file: &NetworkFile, plugins: &BTreeSet<String>) -> bool {
    Network::parse(&file.content)
        .map_or(true, |network| network.other_plugins().iter().all(|kind| plugins.contains(*kind)))
}

/// The name of the network whose chain names the plugin; `None` without such a chain, and with chains of several networks.
pub fn chained_network(files: &[NetworkFile]) -> Option<String> {
    let chains = files.iter().filter(|file| list_with_entry(file).is_some());
    let mut names: BTreeSet<String> = chains.filter_map(|file| list_name(&file.content)).collect();
    names.pop_first().filter(|_| names.is_empty())
}

fn list_with_entry(file: &NetworkFile) -> Option<List<'_>> {
    match Network::parse(&file.content) {
        Ok(Network::List(list)) if list.entries().next().is_some() => Some(list),
        _ => None,
    }
}

/// Whether a file equals the list `text` without the plugin's entry, as a JSON value.
fn is_without_entry(file: &NetworkFile, text: &str) -> bool {
    let without_entry = match Network::parse(text.as_bytes()) {
        Ok(Network::List(list)) => list.without_entry(),
        _ => None,
    };
    let content = std::str::from_utf8(&file.content);
    without_entry.zip(content.ok()).is_some_and(|(list, content)| same_value(&list, content))
}

/// Whether a network names no plugin but this one, so that it gives a pod no interface.
fn has_only_our_plugin(network: &Network<'_>) -> bool {
    match network {
        Network::Single(single) => single.kind() == contract::PLUGIN_NAME,
        Network::List(list) => list.without_entry().is_none(),
    }
}

/// Whether this program created the whole file. A copy of the default name counts even if no record names it, because
/// some versions of this program write copies without a record.
fn is_own(file: &NetworkFile, record: Option<&Record>) -> bool {
    let has_default_name = || file.name == OWNED && list_with_entry(file).is_some();
    record.is_some_and(|record| record.files.contains(&file.name)) || is_own_single(file) || has_default_name()
}

fn is_own_single(file: &NetworkFile) -> bool {
    Network::parse(&file.content)
        .is_ok_and(|network| matches!(network, Network::Single(_)) && has_only_our_plugin(&network))
}

fn without_entry(path: &Path, file: &NetworkFile, list: &List<'_>) -> Operation {
    let (path, expected) = (path.to_owned(), Some(file.content.clone()));
    match list.without_entry() {
        Some(text) => Operation::Write { path, content: text.into_bytes(), mode: file.mode, expected, source: None },
        None => Operation::Remove { path, expected },
    }
}
