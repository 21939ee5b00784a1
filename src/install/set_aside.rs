//! Network configurations that another program has renamed so that no runtime reads them, as Cilium (`cni.exclusive`) and
//! minikube do.
//!
//! Such a file keeps the plugin's entry, and the program may rename it back after the plugin is gone. `snapshot` reads these files;
//! `plan` takes the entry out of them at a removal.
#![expect(clippy::disallowed_methods, reason = "reads the configuration directory")]

use std::fs;
use std::path::Path;

use super::read::{access_mode, network_file};
use crate::libcni::conflist::is_read;

/// What Cilium adds to the names of the files of other programs.
const OF_CILIUM: &str = ".cilium_bak";

/// A network configuration under a name that no runtime reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    pub name: String,
    /// The name under which runtimes read it: `name` without what was added.
    pub former: String,
    pub content: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
}

impl SetAside {
    /// The file of this name; `None` if runtimes read it, or would read it under no beginning of its name.
    pub fn of(name: &str, content: Vec<u8>, mode: u32) -> Option<Self> {
        Some(Self { former: former_name(name)?.to_owned(), name: name.to_owned(), content, mode })
    }

    /// Whether Cilium has renamed the file.
    pub fn is_of_cilium(&self) -> bool {
        self.name.ends_with(OF_CILIUM)
    }
}

/// Reads the files of a configuration directory that were set aside, in the order of their names. Omits those that cannot be read.
pub(super) fn read(dir: &Path) -> Vec<SetAside> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<SetAside> = entries
        .filter_map(|entry| {
            let (name, path) = (entry.file_name().into_string().ok()?, entry.path());
            former_name(&name)?;
            SetAside::of(&name, network_file(&path).ok()?, access_mode(&path).ok()?)
        })
        .collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files
}

/// The longest beginning of a name under which runtimes would read the file, if they do not read it under the whole name.
fn former_name(name: &str) -> Option<&str> {
    let ends = name.rmatch_indices(['.', '~']).map(|(end, _)| &name[..end]);
    let mut former = ends.filter(|former| is_read(former));
    if is_read(name) { None } else { former.next() }
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
