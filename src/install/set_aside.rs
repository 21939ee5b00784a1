//! Network configurations that another program has renamed so that no runtime reads them, as Cilium (`cni.exclusive`) and
//! minikube do.
//!
//! Such a file keeps the plugin's entry, and the program may rename it back after the plugin is gone. `snapshot` reads these files;
//! `plan` removes the entry from them at a removal.
#![expect(clippy::disallowed_methods, reason = "reads the configuration directory")]

use std::fs::{self, DirEntry};
use std::io;
use std::path::Path;

use libcni::conflist::{Network, is_read, without_delegated};

use super::read::{Unread, access_mode, network_file, unread};
use super::temporary::is_temporary;

/// The suffix that Cilium adds to the names of other programs' files.
const OF_CILIUM: &str = ".cilium_bak";

/// A network configuration under a name that no runtime reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    pub name: String,
    /// The name under which runtimes would read the file: the longest such prefix of `name`, or `name` if there is none.
    pub former: String,
    pub content: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Why this process cannot read the file, whose content is then empty.
    pub unread: Option<Unread>,
}

impl SetAside {
    /// Returns the file; `None` if runtimes read it. A file of which no prefix is a name that runtimes read is returned only if its
    /// content names the plugin.
    pub fn of(name: &str, content: Vec<u8>, mode: u32) -> Option<Self> {
        let former = match former_name(name) {
            None if is_read(name) || is_temporary(name.as_ref()) || !names_the_plugin(&content) => return None,
            former => former.unwrap_or(name).to_owned(),
        };
        Some(Self { name: name.to_owned(), former, content, mode, unread: None })
    }

    /// Whether Cilium has renamed the file.
    pub fn is_of_cilium(&self) -> bool {
        self.name.ends_with(OF_CILIUM)
    }
}

/// Reads the files of a configuration directory that were set aside, in the order of their names.
pub(super) fn read(dir: &Path) -> Vec<SetAside> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<SetAside> = entries.filter_map(|entry| read_one(&entry)).collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files
}

/// Reads a file. One that cannot be read is returned only if runtimes would read it under a prefix of its name.
fn read_one(entry: &DirEntry) -> Option<SetAside> {
    let (name, path) = (entry.file_name().into_string().ok()?, entry.path());
    if is_read(&name) || entry.file_type().ok()?.is_dir() {
        return None;
    }
    let read = network_file(&path).and_then(|content| Ok((content, access_mode(&path)?)));
    match read {
        Ok((content, mode)) => SetAside::of(&name, content, mode),
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(&path).is_err() => None,
        Err(error) => {
            let (former, unread) = (former_name(&name)?.to_owned(), Some(unread(&path)(error)));
            Some(SetAside { name, former, content: Vec::new(), mode: 0o600, unread })
        }
    }
}

/// Returns the longest prefix of a name under which runtimes would read the file; `None` if they read the file under its whole
/// name, or under no prefix.
fn former_name(name: &str) -> Option<&str> {
    let mut beginnings = name.char_indices().rev().map(|(end, _)| &name[..end]);
    if is_read(name) { None } else { beginnings.find(|beginning| is_read(beginning)) }
}

/// Whether a configuration names the plugin, also as part of Multus' delegates.
fn names_the_plugin(content: &[u8]) -> bool {
    let is_named = match Network::parse(content) {
        Ok(Network::List(list)) => list.entries().next().is_some(),
        Ok(Network::Single(single)) => single.kind() == contract::PLUGIN_NAME,
        Err(_) => false,
    };
    is_named || without_delegated(content).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_was_read_before_something_was_added_is_recognized() {
        for (name, former) in [
            ("05-net.conflist.cilium_bak", Some("05-net.conflist")),
            ("87-podman-bridge.conflist.mk_disabled", Some("87-podman-bridge.conflist")),
            ("10-net.conf.cilium_bak.mk_disabled", Some("10-net.conf")),
            ("10-net.json.2026.old", Some("10-net.json")),
            ("10-net.conflist~", Some("10-net.conflist")),
            ("10-net.conflist_bak", Some("10-net.conflist")),
            ("10-net.conflist-old", Some("10-net.conflist")),
            ("10-net.conf,v", Some("10-net.conf")),
            ("#10-net.json#", Some("#10-net.json")),
            ("10-net.conflist", None),
            ("10-net.conf.json", None),
            ("10-net.yaml.old", None),
            ("conflist.old", None),
            (".istio-cni.owned", None),
        ] {
            assert_eq!(former_name(name), former, "{name}");
        }
    }
}
