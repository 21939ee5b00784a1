//! The part of a plan that edits network configurations: which file, and what it is to say.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Obstacle, Operation, Plan, Reason, Source, Step, remove};
use crate::install::conflist::{Invalid, List, Network, list_name, same_value};
use crate::install::record::{self, Record};
use crate::install::settings::{Mode, OWNED, Settings};
use crate::install::snapshot::{NetworkFile, Snapshot, is_read};

use crate::contract;

/// Adds what brings the plugin into the node's network.
pub(super) fn install(plan: &mut Plan, settings: &Settings, files: &[NetworkFile], snapshot: &Snapshot) {
    let node = Node { settings, files, snapshot };
    let first = plan.steps.len();
    let done = match &settings.mode {
        Mode::Standalone { file } => node.standalone(plan, file),
        Mode::Chained { primary } => node.primary(primary.as_deref(), None).and_then(|found| node.chain(plan, &found)),
        Mode::Owned { primary, file } => {
            node.primary(primary.as_deref(), Some(file)).and_then(|found| node.own(plan, &found, file))
        }
    };
    match done {
        Ok(target) => {
            node.leave_behind(plan, &target);
            // Killed after any step, the next agent knows all files that there may be.
            plan.steps.splice(first..first, node.record(&target));
        }
        Err(obstacle) => plan.obstacles.push(obstacle),
    }
}

/// Adds what takes the plugin out of every configuration, whatever mode has put it there.
pub(super) fn removal(plan: &mut Plan, settings: &Settings, files: &[NetworkFile], record: Option<&Record>) {
    // A list with our entry before the copy that shadows it: the copy goes last.
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

struct Node<'a> {
    settings: &'a Settings,
    files: &'a [NetworkFile],
    snapshot: &'a Snapshot,
}

/// The file to chain into, as read.
struct Primary<'a> {
    file: &'a NetworkFile,
    network: Network<'a>,
    named: bool,
}

impl<'a> Node<'a> {
    fn path(&self, name: &str) -> std::path::PathBuf {
        self.settings.net_dir.join(name)
    }

    fn find(&self, name: &str) -> Option<&'a NetworkFile> {
        self.files.iter().find(|file| file.name == name)
    }

    /// The file to chain into. One of its other plugins must be where ours is, or the runtime would not find ours; a runtime
    /// may search several directories for the rest.
    fn primary(&self, named: Option<&str>, except: Option<&str>) -> Result<Primary<'a>, Obstacle> {
        let primary = named.map_or_else(|| self.first(except), |name| self.named(name))?;
        let others = primary.network.others();
        if others.is_empty() || others.iter().any(|kind| self.snapshot.plugins.contains(*kind)) {
            return Ok(primary);
        }
        let missing = others.into_iter().map(str::to_owned).collect();
        let (network, bin_dir) = (self.path(&primary.file.name), self.settings.bin_dir.clone());
        Err(Obstacle::PluginsElsewhere { network, bin_dir, missing })
    }

    /// The first file that the runtime would load.
    fn first(&self, except: Option<&str>) -> Result<Primary<'a>, Obstacle> {
        let mut passed_over = Vec::new();
        let is_candidate = |file: &&NetworkFile| Some(file.name.as_str()) != except && !self.is_own(file);
        for file in self.files.iter().filter(is_candidate) {
            match self.read(file) {
                Ok(network) if is_ours_alone(&network) => {}
                Ok(network) => return Ok(Primary { file, network, named: false }),
                // The start of an object: its writer will be done in a moment, and the runtime will use it then.
                Err(Invalid::Json(_)) if file.fresh => {
                    return Err(Obstacle::HalfWritten { path: self.path(&file.name) });
                }
                Err(Invalid::DropInsOnly) if self.has_drop_ins(file) => {
                    let reason = Invalid::DropInsOnly.to_string();
                    return Err(Obstacle::Unusable { path: self.path(&file.name), reason });
                }
                Err(reason) => passed_over.push((file.name.clone(), reason.to_string())),
            }
        }
        Err(Obstacle::NoNetwork { dir: self.settings.net_dir.clone(), passed_over })
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
        match self.read(file) {
            Ok(network) if is_ours_alone(&network) => {
                let reason = format!("it names no plugin but {}", contract::PLUGIN_NAME);
                Err(Obstacle::Unusable { path: self.path(&file.name), reason })
            }
            Ok(network) => Ok(Primary { file, network, named: true }),
            Err(Invalid::Json(_)) if file.fresh => Err(Obstacle::HalfWritten { path: self.path(&file.name) }),
            Err(reason) => Err(Obstacle::Unusable { path: self.path(&file.name), reason: reason.to_string() }),
        }
    }

    /// A runtime goes by the extension: a list in a `.conf` is none to it.
    fn read(&self, file: &'a NetworkFile) -> Result<Network<'a>, Invalid> {
        let network = Network::read(&file.content)?;
        match network {
            Network::Single(_) if file.name.ends_with(".conflist") => Err(Invalid::NoPlugins),
            network => Ok(network),
        }
    }

    fn has_drop_ins(&self, file: &NetworkFile) -> bool {
        list_name(&file.content).is_some_and(|name| self.snapshot.drop_ins.contains(&name))
    }

    /// Chains into the primary file itself; the name under which the chain then is.
    fn chain(&self, plan: &mut Plan, primary: &Primary<'a>) -> Result<String, Obstacle> {
        let Primary { file, network, .. } = primary;
        let entry = self.settings.entry.chained();
        let target = listed_name(&file.name);
        plan.network = Some(self.path(&target));
        match network {
            Network::List(list) => {
                if let Some(reason) = wanting(list, &entry) {
                    self.write(plan, reason, &target, list.with(&entry), file.mode, Some(file));
                    self.take_away(plan, file, &target);
                }
            }
            Network::Single(single) => {
                let text = single.chained(&entry);
                let there = self.find(&target).filter(|there| there.name != file.name);
                match there {
                    Some(there) if list_with_entry(there).is_none() && !is_without_entry(there, &text) => {
                        let (conf, list) = (self.path(&file.name), self.path(&target));
                        return Err(Obstacle::Shadowed { conf, list });
                    }
                    Some(there) if there.content == text.as_bytes() => {}
                    _ => self.write(plan, Reason::EntryMissing, &target, text, file.mode, Some(file)),
                }
                self.take_away(plan, file, &target);
            }
        }
        Ok(target)
    }

    /// The runtime would load the single plugin's file first.
    fn take_away(&self, plan: &mut Plan, file: &NetworkFile, target: &str) {
        if file.name != target {
            let (path, over) = (self.path(&file.name), Some(file.content.clone()));
            plan.step(Reason::Converted, Operation::Remove { path, over });
        }
    }

    /// Chains into a copy.
    fn own(&self, plan: &mut Plan, primary: &Primary<'a>, owned: &str) -> Result<String, Obstacle> {
        let entry = self.settings.entry.chained();
        let text = match &primary.network {
            Network::List(list) => list.with(&entry),
            Network::Single(single) => single.chained(&entry),
        };
        let there = self.ours_or_none(owned)?;
        plan.network = Some(self.path(owned));
        let is_others = |file: &&NetworkFile| file.name != owned && !self.is_own(file);
        let first = self.files.iter().filter(is_others).find(|file| self.read(file).is_ok());
        if let Some(first) = first.filter(|first| first.name.as_str() < owned) {
            let (first, ours) = (self.path(&first.name), self.path(owned));
            let obstacle = Obstacle::Preempted { first, owned: ours };
            if !primary.named {
                return Err(obstacle);
            }
            plan.remarks.push(obstacle.to_string());
        }
        match there {
            Some(there) if there.content == text.as_bytes() => {}
            Some(there) => self.write(plan, Reason::EntryDiffers, owned, text, there.mode, Some(primary.file)),
            None => self.write(plan, Reason::EntryMissing, owned, text, self.settings.conf_mode, Some(primary.file)),
        }
        Ok(owned.to_owned())
    }

    /// What is under the name of a file of ours. A file that is neither recorded nor runs the plugin is another program's, whose
    /// content would be lost, and which a removal would take away as ours.
    fn ours_or_none(&self, name: &str) -> Result<Option<&'a NetworkFile>, Obstacle> {
        match self.find(name) {
            Some(there) if !self.is_own(there) && list_with_entry(there).is_none() => {
                Err(Obstacle::Foreign { path: self.path(name) })
            }
            there => Ok(there),
        }
    }

    fn standalone(&self, plan: &mut Plan, file: &str) -> Result<String, Obstacle> {
        let there = self.ours_or_none(file)?;
        let text = self.settings.entry.standalone();
        plan.network = Some(self.path(file));
        match there {
            None => self.write(plan, Reason::EntryMissing, file, text, self.settings.conf_mode, None),
            Some(there) if std::str::from_utf8(&there.content).is_ok_and(|there| same_value(there, &text)) => {}
            Some(there) => self.write(plan, Reason::EntryDiffers, file, text, there.mode, None),
        }
        Ok(file.to_owned())
    }

    /// Removes files of a former mode, and takes our entry out of chains that the runtime does not use any more: two of ours
    /// would meet in one pod. What has the entry now comes first, so that the chain that the runtime uses always has it.
    fn leave_behind(&self, plan: &mut Plan, target: &str) {
        for file in self.files.iter().filter(|file| file.name != target) {
            // Taken away as converted, or to be.
            if listed_name(&file.name) == target && !self.is_own(file) {
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

    /// The step that brings the record to what there is and what there will be, where it says something else.
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
            false => Operation::Write { path, content: record.text(), mode: 0o600, over: None, source: None },
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
        let over = self.find(name).map(|there| there.content.clone());
        let source = source.filter(|source| source.name != name);
        let source = source.map(|file| Source { path: self.path(&file.name), content: file.content.clone() });
        let (path, content) = (self.path(name), text.into_bytes());
        plan.step(reason, Operation::Write { path, content, mode, over, source });
    }
}

/// Why a chain has to be edited.
fn wanting(list: &List<'_>, entry: &str) -> Option<Reason> {
    let mut ours = list.entries();
    match (ours.next(), ours.next()) {
        (None, _) => Some(Reason::EntryMissing),
        (Some(there), None) if same_value(there.get(), entry) => None,
        _ => Some(Reason::EntryDiffers),
    }
}

/// A list is never under a name by which runtimes expect a single plugin.
fn listed_name(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((stem, "conf" | "json")) => format!("{stem}.conflist"),
        _ => name.to_owned(),
    }
}

/// Whether a file's network runs the plugin.
pub(super) fn names_the_plugin(file: &NetworkFile) -> bool {
    list_with_entry(file).is_some() || is_our_single(file)
}

/// Whether a runtime that searches `plugins` alone may run this network: they hold all of its plugins but ours. The entry of
/// ours need not be in it: a network's owner may have rewritten it, and the next agent adds the entry again at once. A file
/// that is no network, as one that is unreadable, empty or half-written, may become any.
pub(super) fn may_run_from(file: &NetworkFile, plugins: &BTreeSet<String>) -> bool {
    Network::read(&file.content).map_or(true, |network| network.others().iter().all(|kind| plugins.contains(*kind)))
}

/// The name of the network whose chain names the plugin; none without such a chain, or with chains of several networks.
pub fn chained_network(files: &[NetworkFile]) -> Option<String> {
    let chains = files.iter().filter(|file| list_with_entry(file).is_some());
    let mut names: BTreeSet<String> = chains.filter_map(|file| list_name(&file.content)).collect();
    names.pop_first().filter(|_| names.is_empty())
}

fn list_with_entry(file: &NetworkFile) -> Option<List<'_>> {
    match Network::read(&file.content) {
        Ok(Network::List(list)) if list.entries().next().is_some() => Some(list),
        _ => None,
    }
}

/// Whether a file is what is left of this list once our entry is taken out.
fn is_without_entry(file: &NetworkFile, text: &str) -> bool {
    let bare = match Network::read(text.as_bytes()) {
        Ok(Network::List(list)) => list.without(),
        _ => None,
    };
    let content = std::str::from_utf8(&file.content);
    bare.zip(content.ok()).is_some_and(|(bare, content)| same_value(&bare, content))
}

/// Whether nothing in it gives a pod a network.
fn is_ours_alone(network: &Network<'_>) -> bool {
    match network {
        Network::Single(single) => single.kind() == contract::PLUGIN_NAME,
        Network::List(list) => list.without().is_none(),
    }
}

/// Whether a file is ours as a whole. Agents that kept no record gave copies the usual name.
fn is_own(file: &NetworkFile, record: Option<&Record>) -> bool {
    let usual = || file.name == OWNED && list_with_entry(file).is_some();
    record.is_some_and(|record| record.files.contains(&file.name)) || is_our_single(file) || usual()
}

fn is_our_single(file: &NetworkFile) -> bool {
    Network::read(&file.content).is_ok_and(|network| matches!(network, Network::Single(_)) && is_ours_alone(&network))
}

fn without_entry(path: &Path, file: &NetworkFile, list: &List<'_>) -> Operation {
    let (path, over) = (path.to_owned(), Some(file.content.clone()));
    match list.without() {
        Some(text) => Operation::Write { path, content: text.into_bytes(), mode: file.mode, over, source: None },
        None => Operation::Remove { path, over },
    }
}
