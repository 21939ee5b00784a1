//! Plans the removal from the configuration directory: removes entries and this program's files, and restores originals. Also
//! restores an original when the entry moves to another network. Pure.

use std::path::Path;

use libcni::conflist::{List, Network, same_value, without_delegated};

use super::select::{bare, conflist_name, is_own, list_with_entry, names_the_plugin, naming, reads, replaced};
use super::{Plan, Reason, remove};
use crate::install::operation::{Operation, Source};
use crate::install::record::Original;
use crate::install::set_aside::SetAside;
use crate::install::settings::{InstallSettings, Mode};
use crate::install::snapshot::{NetworkFile, Snapshot};

/// Adds the steps after which no configuration names the plugin, and no file of this program is left, whatever the installation's mode.
pub(super) fn restore(plan: &mut Plan, settings: &InstallSettings, files: &[NetworkFile], snapshot: &Snapshot) {
    let directory = Directory { settings, files, snapshot };
    let held = directory.held();
    // A copy sorts before the list that it was made of. It is removed after the list's entry, because the runtime uses
    // the list as soon as the copy is removed.
    let (own, others): (Vec<_>, Vec<_>) = held.iter().partition(|held| directory.is_own(held));
    let (kept, own): (Vec<_>, Vec<_>) = own.into_iter().partition(|held| directory.keep(plan, held));
    for held in others {
        let replacement = directory.replacement_of(held).filter(|_| !directory.keep(plan, held));
        match replacement {
            Some(replacement) => {
                // A newer version from Multus is a copy of a network with the plugin.
                let replacement = replacement.map_content(bare);
                directory.replace(plan, Reason::Removal, held.name, &held.file, replacement);
            }
            None => directory.take_out(plan, held),
        }
    }
    kept.into_iter().for_each(|held| directory.take_out(plan, held));
    for held in own {
        plan.step(Reason::Removal, remove(settings.net_dir.join(held.name)));
    }
}

/// Adds the steps that replace a converted list, which does not get the entry, with its original. Returns whether there are any.
pub(super) fn put_back(plan: &mut Plan, settings: &InstallSettings, snapshot: &Snapshot, file: &NetworkFile) -> bool {
    let files = snapshot.networks.as_deref().unwrap_or_default();
    let directory = Directory { settings, files, snapshot };
    let held = Held { name: &file.name, file: file.clone() };
    let Some(replacement) = directory.replacement_of(&held) else { return false };
    directory.replace(plan, Reason::LeftBehind, held.name, &held.file, replacement);
    true
}

/// Returns the operation that removes the plugin from another program's file, also from Multus' delegates in it, if the file names
/// the plugin.
fn without_plugin(path: &Path, file: &NetworkFile) -> Option<Operation> {
    let content = match list_with_entry(file) {
        Some(list) => list.without_entry().map(bare),
        None => Some(without_delegated(&file.content)?),
    };
    Some(replaced(path, file, content))
}

/// A configuration directory from which the installation is removed.
struct Directory<'a> {
    settings: &'a InstallSettings,
    files: &'a [NetworkFile],
    snapshot: &'a Snapshot,
}

/// A file that may hold the plugin's entry.
struct Held<'a> {
    name: &'a str,
    /// The file, with the name under which runtimes read it.
    file: NetworkFile,
}

/// The file that takes the place of a list that this program has converted.
struct Replacement<'a> {
    original: &'a Original,
    /// The original under its former name, or the newer version that its owner has written.
    by: Source,
    /// Whether the file exists already.
    exists: bool,
}

impl Replacement<'_> {
    fn map_content(self, map: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Self {
        let Source { path, content } = self.by;
        Self { by: Source { path, content: map(content) }, ..self }
    }
}

impl Held<'_> {
    /// Returns what another program has appended to the name.
    fn suffix(&self) -> &str {
        self.name.strip_prefix(self.file.name.as_str()).unwrap_or_default()
    }
}

impl<'a> Directory<'a> {
    /// Returns the files that may hold the entry: configurations, and those that another program has renamed.
    fn held(&self) -> Vec<Held<'a>> {
        let files = self.files.iter().map(|file| Held { name: &file.name, file: file.clone() });
        let is_named = |aside: &&SetAside| self.files.iter().any(|file| file.name == aside.name);
        let renamed = self.snapshot.set_aside.iter().filter(|aside| aside.unread.is_none() && !is_named(aside));
        let renamed = renamed.map(|aside| Held {
            name: &aside.name,
            file: NetworkFile {
                name: aside.former.clone(),
                content: aside.content.clone(),
                mode: aside.mode,
                is_recent: false,
                unread: None,
            },
        });
        files.chain(renamed).collect()
    }

    /// Whether a list that would be removed stays under its name, because another configuration has its path. Adds a warning in that case.
    fn keep(&self, plan: &mut Plan, held: &Held<'_>) -> bool {
        let Some(by) = naming(self.settings, self.files, held.name) else { return false };
        // A copy of Multus' own file that Multus reads would call itself.
        if reads(self.settings, &held.file.content, held.name) {
            return false;
        }
        let is_list = matches!(Network::of_file(&held.file.name, &held.file.content), Ok(Network::List(_)));
        if is_list {
            let (list, by) = (self.settings.net_dir.join(held.name), self.settings.net_dir.join(&by.name));
            plan.warnings.push(format!("{} stays, without the plugin: {} has its path", list.display(), by.display()));
        }
        is_list
    }

    /// Adds the step that removes the plugin from a file, if the file names the plugin.
    fn take_out(&self, plan: &mut Plan, held: &Held<'_>) {
        let removed = without_plugin(&self.settings.net_dir.join(held.name), &held.file);
        removed.into_iter().for_each(|operation| plan.step(Reason::Removal, operation));
    }

    /// Whether this program created the whole file. A file that another program has renamed must also name the plugin.
    fn is_own(&self, held: &Held<'_>) -> bool {
        let Held { file, .. } = held;
        let named = matches!(&self.settings.mode, Mode::Owned { file: owned, .. } if *owned == file.name);
        let is_own = (named && list_with_entry(file).is_some()) || is_own(file, self.snapshot.record.as_ref());
        is_own && (held.suffix().is_empty() || names_the_plugin(file))
    }

    /// Returns the file that takes the place of a list that was converted. A list that another program has changed since the
    /// conversion stays, unless the owner of the converted file has written that file again.
    fn replacement_of(&self, held: &Held<'_>) -> Option<Replacement<'a>> {
        let originals = self.snapshot.record.iter().flat_map(|record| &record.originals);
        let mut of_list = originals.filter(|(name, _)| conflist_name(name) == held.file.name);
        of_list.find_map(|(former, original)| {
            let name = format!("{former}{}", held.suffix());
            let newer = self.content(&name);
            let is_leftover = newer.is_some() && list_with_entry(&held.file).is_some();
            let content = newer.unwrap_or(&original.content).to_vec();
            let by = Source { path: self.settings.net_dir.join(name), content };
            (is_leftover || self.is_converted(&held.file, original)).then_some(Replacement {
                original,
                by,
                exists: newer.is_some(),
            })
        })
    }

    /// Whether a list is the conversion of `original`, with the plugin's entry or without.
    fn is_converted(&self, file: &NetworkFile, original: &Original) -> bool {
        let Ok(Network::List(list)) = Network::of_file(&file.name, &file.content) else { return false };
        let converted = match Network::parse(&original.content) {
            Ok(Network::Single(single)) => {
                let chained = single.chained(&self.settings.entry.chained());
                List::decode(&chained).ok().and_then(|list| list.without_entry())
            }
            Ok(Network::List(_)) => Some(original.content.clone()),
            Err(_) => None,
        };
        let is = |bare: Vec<u8>| converted.is_some_and(|converted| converted == bare || same_value(&converted, &bare));
        list.without_entry().is_some_and(is)
    }

    /// Restores an original, unless its owner has written the file again, and removes the list. The runtime finds at least one of
    /// the two at any time.
    fn replace(&self, plan: &mut Plan, reason: Reason, name: &str, list: &NetworkFile, replacement: Replacement<'_>) {
        let Replacement { original, by, exists } = replacement;
        if !exists {
            let Source { path, content } = by.clone();
            let write = Operation::Write { path, content, mode: original.mode, expected: None, source: None };
            plan.step(reason, write);
        }
        let (path, expected) = (self.settings.net_dir.join(name), Some(list.content.clone()));
        plan.step(reason, Operation::Remove { path, expected, replaced_by: Some(by) });
    }

    /// Returns the content of a file of this name, if it exists.
    fn content(&self, name: &str) -> Option<&'a [u8]> {
        let file = self.files.iter().find(|file| file.name == name).map(|file| file.content.as_slice());
        let mut set_aside = self.snapshot.set_aside.iter().filter(|aside| aside.unread.is_none());
        file.or_else(|| set_aside.find(|aside| aside.name == name).map(|aside| &*aside.content))
    }
}
