//! Plans the edits of network configurations: derives their new content. Pure.

use std::collections::BTreeSet;
use std::path::PathBuf;

use libcni::conflist::{Delegate, List, Network, delegated_network, is_read, same_value};

use super::restore::put_back;
use super::select::{
    Node, Primary, bare, conflist_name, delegates_name_plugin, list_with_entry, names_the_plugin, reads, replaced,
};
use super::{Obstacle, Plan, Reason, Step, remove};
use crate::install::operation::{Operation, Source};
use crate::install::read::{MAX_CONFIGURATION, too_large};
use crate::install::record::{self, Original};
use crate::install::settings::{InstallSettings, Mode};
use crate::install::snapshot::{NetworkFile, Snapshot};

/// Adds the steps after which the node's network names the plugin.
pub(super) fn install(plan: &mut Plan, settings: &InstallSettings, files: &[NetworkFile], snapshot: &Snapshot) {
    let node = Node { settings, files, snapshot };
    let first = plan.steps.len();
    let done = match &settings.mode {
        Mode::Standalone { file } => node.standalone(plan, file),
        Mode::Chained { primary } => {
            node.chained(primary.as_deref()).and_then(|found| node.chain_in_place(plan, &found))
        }
        Mode::Owned { primary, file } => {
            node.copied(primary.as_deref(), file).and_then(|found| node.chain_copy(plan, &found, file))
        }
    };
    match done {
        Ok(target) => {
            let record = node.record(&target);
            node.remove_converted(plan, &target, record.as_ref());
            // A file that hides the target may be the node's network, and its chain must not lose its entry.
            let hides = |found: &Obstacle| {
                matches!(found, Obstacle::Refused { .. } | Obstacle::Unjudged(_) | Obstacle::PluginsMissing { .. })
            };
            if !plan.obstacles.iter().any(hides) {
                node.remove_former(plan, &target.name, target.copied.as_deref());
            }
            // The record comes first, so that it names all files if the agent is killed after any step.
            plan.steps.splice(first..first, record);
        }
        Err(obstacle) => plan.obstacles.push(obstacle),
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
/// Fails with the obstacle that an installation would have.
pub fn pod_network(settings: &InstallSettings, snapshot: &Snapshot) -> Result<PodNetwork, Obstacle> {
    let files = snapshot.networks.as_ref().map_err(Clone::clone)?;
    let names_the_plugin = files.iter().any(names_the_plugin);
    let node = Node { settings, files, snapshot };
    let found = match &settings.mode {
        Mode::Standalone { file } => {
            return Ok(PodNetwork { path: node.path(file), others: Vec::new(), names_the_plugin });
        }
        Mode::Chained { primary } => node.chained(primary.as_deref())?,
        Mode::Owned { primary, file } => node.copied(primary.as_deref(), file)?,
    };
    if let Some(hidden) = found.hidden_by.into_iter().next() {
        return Err(hidden);
    }
    let others = found.network.other_plugins().into_iter().map(str::to_owned).collect();
    Ok(PodNetwork { path: node.path(&found.file.name), others, names_the_plugin })
}

/// The file that has the entry after a plan.
struct Target<'a> {
    name: String,
    /// The file of another name from which it was converted, with the content that a removal restores.
    converted: Option<(&'a NetworkFile, Original)>,
    /// The name of the pod network that Multus has copied into the file.
    copied: Option<String>,
}

impl<'a> Node<'a> {
    /// Adds the entry to the primary file's network; returns the resulting file.
    ///
    /// A list that an obstacle hides from runtimes gets its entry, too: CRI-O may use the list, and no runtime may use it without
    /// the entry once the obstacle is removed. A single plugin that the runtime may not use is not converted.
    fn chain_in_place(&self, plan: &mut Plan, primary: &Primary<'a>) -> Result<Target<'a>, Obstacle> {
        let Primary { file, network, hidden_by, warnings, .. } = primary;
        plan.warnings.extend(warnings.iter().cloned());
        let mut unjudged = hidden_by.iter().filter(|hiding| matches!(hiding, Obstacle::Unjudged(_)));
        match (network, unjudged.next()) {
            (Network::Single(_), Some(unjudged)) => return Err(unjudged.clone()),
            _ => plan.obstacles.extend(hidden_by.iter().cloned()),
        }
        let target = conflist_name(&file.name);
        if let Some(by) = self.naming(&file.name).filter(|_| target != file.name) {
            return Err(Obstacle::Named { path: self.path(&file.name), by: self.path(&by.name) });
        }
        plan.network = Some(self.path(&target));
        self.write_chain(plan, file, network, &target)?;
        if primary.named {
            plan.obstacles.extend(self.outdated_copy(file, network, &target));
            plan.warnings.extend(self.other_network(&target));
        }
        let original = match network {
            Network::List(list) => list.without_entry().unwrap_or_else(|| file.content.clone()),
            Network::Single(_) => file.content.clone(),
        };
        let original = Original { content: bare(original), mode: file.mode };
        let converted = (file.name != target).then_some((*file, original));
        Ok(Target { name: target, converted, copied: copied_network(file) })
    }

    /// Adds the step after which `target` is the list of a file's network, with the entry.
    ///
    /// The plugin is removed from Multus' copies of networks: Multus would run it a second time, with the settings at the time of
    /// the copy.
    fn write_chain(
        &self,
        plan: &mut Plan,
        file: &'a NetworkFile,
        network: &Network<'_>,
        target: &str,
    ) -> Result<(), Obstacle> {
        let entry = self.settings.entry.chained();
        let (text, reason) = match network {
            Network::List(list) => {
                // The operator may name a list in a `.conf`, which no runtime loads until it is renamed.
                let renamed = (file.name != target).then_some(Reason::Converted);
                let delegated = delegates_name_plugin(&file.content).then_some(Reason::EntryDiffers);
                let Some(reason) = entry_deviation(list, &entry).or(delegated).or(renamed) else { return Ok(()) };
                (bare(list.with_entry(&entry)), reason)
            }
            Network::Single(single) => (bare(single.chained(&entry)), Reason::EntryMissing),
        };
        self.check_size(target, &text)?;
        let existing = self.check_shadowed(file, target, &text)?;
        if existing.is_none_or(|existing| existing.content != text) {
            self.write(plan, reason, target, text, file.mode, Some(file));
        }
        Ok(())
    }

    /// Fails for a list of more than [`MAX_CONFIGURATION`]: no later pass could read it, and no removal edit it.
    fn check_size(&self, name: &str, text: &[u8]) -> Result<(), Obstacle> {
        if text.len() as u64 <= MAX_CONFIGURATION {
            return Ok(());
        }
        let reason = format!("with its entry the file would have {}", too_large(MAX_CONFIGURATION));
        Err(Obstacle::Unusable { path: self.path(name), reason })
    }

    /// Returns the obstacle that Multus runs a copy of the network, without the plugin or with other settings, instead of the file
    /// `target`.
    fn outdated_copy(&self, file: &NetworkFile, network: &Network<'_>, target: &str) -> Option<Obstacle> {
        let first = self.first(None).ok()?.file;
        if first.name == target || first.name == file.name {
            return None;
        }
        let entry = self.settings.entry.chained();
        let is_outdated = |copy: &Delegate<'_>| match copy.entries.as_slice() {
            [only] => !same_value(only, entry.as_bytes()),
            _ => true,
        };
        let copy = delegated_network(&first.content).filter(|copy| network.name() == Some(&copy.name));
        copy.as_ref()
            .is_some_and(is_outdated)
            .then(|| Obstacle::Copied { copy: self.path(&first.name), network: self.path(target) })
    }

    /// Returns the warning that Multus' daemon reads a network other than the one in `target`, which the operator has named.
    fn other_network(&self, target: &str) -> Option<String> {
        let first = self.first(None).ok()?;
        let read = self.read_by_shim(&first).filter(|read| read != target)?;
        let [target, first, read] = [target, &first.file.name, &read].map(|name| self.path(name).display().to_string());
        Some(format!(
            "pods are not redirected if the runtime uses {first}, which has the path of {read} and not of {target}"
        ))
    }

    /// Returns the existing file that a conversion of `file` to `text` would replace, unless it is a list of another program.
    fn check_shadowed(
        &self,
        file: &NetworkFile,
        target: &str,
        text: &[u8],
    ) -> Result<Option<&'a NetworkFile>, Obstacle> {
        let existing = self.find(target).filter(|existing| existing.name != file.name);
        match existing {
            Some(existing) if list_with_entry(existing).is_none() && !is_without_entry(existing, text) => {
                Err(Obstacle::Shadowed { conf: self.path(&file.name), list: self.path(target) })
            }
            existing => Ok(existing),
        }
    }

    /// Removes a file that has been converted to a list: the runtime would load that file first. If `record` writes the original,
    /// the step fails unless the record was written.
    fn remove_converted(&self, plan: &mut Plan, target: &Target<'_>, record: Option<&Step>) {
        let Some((file, _)) = &target.converted else { return };
        let replaced_by = record.and_then(|step| match &step.operation {
            Operation::Write { path, content, .. } => Some(Source { path: path.clone(), content: content.clone() }),
            _ => None,
        });
        let (path, expected) = (self.path(&file.name), Some(file.content.clone()));
        plan.step(Reason::Converted, Operation::Remove { path, expected, replaced_by });
    }

    /// Adds the entry to a copy of the primary file's network.
    ///
    /// Fails if the runtime may not use the network: its copy would become the node's network, because it sorts first.
    fn chain_copy(&self, plan: &mut Plan, primary: &Primary<'a>, owned: &str) -> Result<Target<'a>, Obstacle> {
        if let Some((first, others)) = primary.hidden_by.split_first() {
            plan.obstacles.extend(others.iter().cloned());
            return Err(first.clone());
        }
        plan.warnings.extend(primary.warnings.iter().cloned());
        let entry = self.settings.entry.chained();
        let text = match &primary.network {
            Network::List(list) => bare(list.with_entry(&entry)),
            Network::Single(single) => bare(single.chained(&entry)),
        };
        self.check_size(owned, &text)?;
        if reads(self.settings, &primary.file.content, owned) {
            return Err(Obstacle::Loop { multus: self.path(&primary.file.name), owned: self.path(owned) });
        }
        let existing = self.find_own(owned, &text)?;
        plan.network = Some(self.path(owned));
        let is_foreign = |file: &&NetworkFile| is_read(&file.name) && file.name != owned && !self.is_own(file);
        for first in self.files.iter().filter(is_foreign).filter(|file| file.name.as_str() < owned) {
            let preempted = Obstacle::Preempted { first: self.path(&first.name), owned: self.path(owned) };
            match self.judge(first) {
                Err(refusal) => return Err(self.hiding(first, refusal)),
                Ok(_) if !primary.named => return Err(preempted),
                Ok(_) => plan.warnings.push(preempted.to_string()),
            }
        }
        match existing {
            Some(existing) if existing.content == text => {}
            Some(existing) => self.write(plan, Reason::EntryDiffers, owned, text, existing.mode, Some(primary.file)),
            None => self.write(plan, Reason::EntryMissing, owned, text, self.settings.conf_mode, Some(primary.file)),
        }
        Ok(Target { name: owned.to_owned(), converted: None, copied: None })
    }

    /// Returns the existing file of this name. It is an error if the file is neither recorded nor names the plugin: the file then
    /// belongs to another program, and an installation would overwrite it, and a later removal would delete it. A list that differs
    /// from `text` only in the entry was left by a removal, because Multus reads it.
    fn find_own(&self, name: &str, text: &[u8]) -> Result<Option<&'a NetworkFile>, Obstacle> {
        let is_ours = |existing: &NetworkFile| {
            self.is_own(existing) || list_with_entry(existing).is_some() || is_without_entry(existing, text)
        };
        match self.find(name) {
            Some(existing) if !is_ours(existing) => Err(Obstacle::Foreign { path: self.path(name) }),
            existing => Ok(existing),
        }
    }

    fn standalone(&self, plan: &mut Plan, file: &str) -> Result<Target<'a>, Obstacle> {
        let text = self.settings.entry.standalone();
        let existing = self.find_own(file, text.as_bytes())?;
        plan.network = Some(self.path(file));
        match existing {
            None => self.write(plan, Reason::EntryMissing, file, text.into(), self.settings.conf_mode, None),
            Some(existing) if same_value(&existing.content, text.as_bytes()) => {}
            Some(existing) => self.write(plan, Reason::EntryDiffers, file, text.into(), existing.mode, None),
        }
        Ok(Target { name: file.to_owned(), converted: None, copied: None })
    }

    /// Removes files of a former mode, and the entry from chains that the runtime no longer uses, lest the plugin run twice for a
    /// pod. The original of a converted list is restored. These steps follow the edit of `target`, so that the chain that the
    /// runtime uses always has the entry.
    ///
    /// A list that Multus has copied into `target` gets the entry, too, so that the next copy never lacks it. A file that Multus
    /// reads by its path keeps its name.
    fn remove_former(&self, plan: &mut Plan, target: &str, copied: Option<&str>) {
        for file in self.files.iter().filter(|file| file.name != target) {
            // The file from which `target` was converted is removed by `remove_converted`, now or in a later plan.
            if conflist_name(&file.name) == target && !self.is_own(file) {
                continue;
            }
            let is_named = self.naming(&file.name).is_some() && !reads(self.settings, &file.content, &file.name);
            if self.is_own(file) && !is_named {
                plan.step(Reason::LeftBehind, remove(self.path(&file.name)));
            } else if let Some(list) = copied_list(file, copied) {
                let entry = self.settings.entry.chained();
                if let Some(reason) = entry_deviation(&list, &entry) {
                    self.write(plan, reason, &file.name, list.with_entry(&entry), file.mode, None);
                }
            } else if (is_named || !put_back(plan, self.settings, self.snapshot, file))
                && let Some(list) = list_with_entry(file)
            {
                plan.step(Reason::LeftBehind, replaced(&self.path(&file.name), file, list.without_entry()));
            }
        }
    }

    /// Returns the step that updates the record to the existing and the planned files, if it differs.
    fn record(&self, target: &Target<'_>) -> Option<Step> {
        let recorded = self.snapshot.record.clone().unwrap_or_default();
        let mut record = recorded.clone();
        let is_set_aside = |name: &String| self.snapshot.set_aside.iter().any(|file| file.former == *name);
        let exists = |name: &String| self.find(name).is_some() || is_set_aside(name);
        record.files.retain(&exists);
        record.originals.retain(|name, _| exists(&conflist_name(name)));
        record.chains.retain(|name| self.find(name).is_some_and(|file| list_with_entry(file).is_some()));
        match &self.settings.mode {
            Mode::Owned { file, .. } | Mode::Standalone { file } => drop(record.files.insert(file.clone())),
            Mode::Chained { .. } if is_read(&target.name) => {}
            Mode::Chained { .. } => drop(record.chains.insert(target.name.clone())),
        }
        if let Some((file, original)) = &target.converted {
            record.originals.insert(file.name.clone(), original.clone());
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
        content: Vec<u8>,
        mode: u32,
        source: Option<&NetworkFile>,
    ) {
        let expected = self.find(name).map(|existing| existing.content.clone());
        let source = source.filter(|source| source.name != name);
        let source = source.map(|file| Source { path: self.path(&file.name), content: file.content.clone() });
        let path = self.path(name);
        plan.step(reason, Operation::Write { path, content, mode, expected, source });
    }
}

/// Returns how a list's entries of the plugin differ from `entry`; `None` if they do not.
fn entry_deviation(list: &List<'_>, entry: &str) -> Option<Reason> {
    let mut entries = list.entries();
    match (entries.next(), entries.next()) {
        (None, _) => Some(Reason::EntryMissing),
        (Some(existing), None) if same_value(existing, entry.as_bytes()) => None,
        _ => Some(Reason::EntryDiffers),
    }
}

/// Returns the name of the pod network that Multus has copied into a file.
fn copied_network(file: &NetworkFile) -> Option<String> {
    delegated_network(&file.content).map(|delegate| delegate.name)
}

/// Returns the list in a file if Multus has copied the list.
fn copied_list<'f>(file: &'f NetworkFile, copied: Option<&str>) -> Option<List<'f>> {
    match Network::of_file(&file.name, &file.content) {
        Ok(Network::List(list)) if copied == Some(list.name()) => Some(list),
        _ => None,
    }
}

/// Whether a runtime that searches only the directory of `plugins` may run this network: the directory holds all of its other
/// plugins. The network need not name this plugin: its owner may have rewritten it, and the next agent adds the entry again. A file
/// that is not a network, such as an unreadable, empty or incomplete one, may become any network.
pub(super) fn may_run_from(file: &NetworkFile, plugins: &BTreeSet<String>) -> bool {
    Network::of_file(&file.name, &file.content)
        .map_or(true, |network| network.other_plugins().iter().all(|kind| plugins.contains(*kind)))
}

/// Returns the name of the network whose chain names the plugin; `None` if no chain does, or chains of several networks do. A
/// network and Multus' copy of it are one network.
pub fn chained_network(files: &[NetworkFile]) -> Option<String> {
    let chains: Vec<_> = files.iter().filter_map(|file| Some((file, list_with_entry(file)?))).collect();
    let is_copied = |name: &str, by: &NetworkFile| {
        chains.iter().any(|(copy, _)| copy.name != by.name && copied_network(copy).as_deref() == Some(name))
    };
    let originals = chains.iter().filter(|(file, list)| !is_copied(list.name(), file));
    let mut names: BTreeSet<String> = originals.map(|(_, list)| list.name().to_owned()).collect();
    names.pop_first().filter(|_| names.is_empty())
}

/// Whether a file equals the list `text` without the plugin's entry, as a JSON value.
fn is_without_entry(file: &NetworkFile, text: &[u8]) -> bool {
    let without_entry = List::decode(text).ok().and_then(|list| list.without_entry());
    without_entry.is_some_and(|list| same_value(&list, &file.content))
}
