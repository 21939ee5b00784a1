//! The record of the directories in which agents have installed the plugin on this node. Pure.
//!
//! The record is in the run directory, which all agents of a node share even if their other directories differ, like the plugin's
//! kubeconfig. An agent does not mount the directories of former agents, so only this record informs it about the chains there.
//! `plan` adds an agent's directories to the record before it edits a chain there, and removes them when it removes the
//! installation. If the record cannot be read, an installation continues with a warning.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::directories::Directories;
use super::operation::Operation;
use super::read::Unread;

/// The record's file name in the run directory.
pub(super) const FILE: &str = ".istio-cni.installed";
/// The maximum number of recorded installations; further ones replace the oldest.
const MAX: usize = 16;

/// The directories of the recorded installations, at most one for each configuration directory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Installed(Vec<Directories>);

/// The record exists and cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Illegible {
    /// The file contains something else, such as a part of a record.
    #[error("{} is no record of installations: {reason}; it is written again, without the directories of other agents", path.display())]
    Content { path: PathBuf, reason: String },
    /// The file cannot be read, or is a directory.
    #[error("the record of installations is ignored: {0}; remove it")]
    File(Unread),
}

impl Illegible {
    /// Whether a new record can replace the illegible one.
    pub(super) fn is_replaceable(&self) -> bool {
        matches!(self, Self::Content { .. })
    }
}

impl Installed {
    /// Parses the content of a record's file.
    pub(super) fn parse(content: &[u8], path: &Path) -> Result<Self, Illegible> {
        let illegible =
            |error: serde_json::Error| Illegible::Content { path: path.to_owned(), reason: error.to_string() };
        serde_json::from_slice(content).map_err(illegible)
    }

    /// Returns the content of the record's file.
    pub(super) fn text(&self) -> Vec<u8> {
        // Paths that are not UTF-8 cannot be serialized; Istio's are ASCII.
        let mut text = serde_json::to_vec_pretty(self).unwrap_or_default();
        text.push(b'\n');
        text
    }

    /// Returns the operation that writes the record, or removes it if it is empty.
    pub(super) fn write(&self, run_dir: &Path) -> Operation {
        let path = run_dir.join(FILE);
        match self.is_empty() {
            true => Operation::Remove { path, expected: None, replaced_by: None },
            false => Operation::Write { path, content: self.text(), mode: 0o600, expected: None, source: None },
        }
    }

    /// Whether no directories are recorded.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the directories that were recorded first.
    pub(super) fn first(&self) -> Option<&Directories> {
        self.0.first()
    }

    /// Returns the record with these directories added. The oldest directories are dropped if there are more than
    /// [`MAX`].
    pub(super) fn with(&self, own: &Directories) -> Self {
        if self.0.contains(own) {
            return self.clone();
        }
        let mut all = self.except(own).0;
        all.push(own.clone());
        all.drain(..all.len().saturating_sub(MAX));
        Self(all)
    }

    /// Returns the record without the configuration directory of `own`.
    pub(super) fn except(&self, own: &Directories) -> Self {
        Self(self.0.iter().filter(|other| !other.has_conf_of(own)).cloned().collect())
    }

    /// Returns a recorded installation with the same plugin directory as `own`.
    pub(super) fn with_bin_of(&self, own: &Directories) -> Option<&Directories> {
        self.0.iter().find(|other| other.has_bin_of(own))
    }
}

/// Returns the operation that adds directories to the record that was `read`. Returns `None` if the record has them
/// already, or if its path cannot be read, for example because it is a directory.
pub(super) fn update(read: &Result<Installed, Illegible>, own: &Directories, run_dir: &Path) -> Option<Operation> {
    let (installed, is_legible) = match read {
        Ok(installed) => (installed.clone(), true),
        Err(Illegible::Content { .. }) => (Installed::default(), false),
        Err(Illegible::File(_)) => return None,
    };
    let next = installed.with(own);
    (!is_legible || next != installed).then(|| next.write(run_dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::Place;

    fn directories(conf: u64, bin: u64) -> Directories {
        Directories::numbered(conf, bin, Place::default())
    }

    #[test]
    fn a_configuration_directory_is_recorded_once_and_the_number_is_limited() {
        let record = Installed::default().with(&directories(1, 1)).with(&directories(2, 1)).with(&directories(1, 3));
        assert_eq!(record, Installed(vec![directories(2, 1), directories(1, 3)]));
        assert_eq!(record.with(&directories(2, 1)), record, "the order does not change");
        let parse = |content: &[u8]| Installed::parse(content, Path::new("/run/x"));
        assert_eq!(parse(&record.text()), Ok(record.clone()));
        let text = record.text();
        let said = parse(&text[..text.len() / 2]).unwrap_err().to_string();
        assert!(said.starts_with("/run/x is no record of installations: EOF while parsing"), "{said}");
        let many = (0..100).fold(record, |record, conf| record.with(&directories(conf, 1)));
        assert_eq!((many.0.len(), many.first()), (MAX, Some(&directories(84, 1))));
    }

    #[test]
    fn directories_are_compared_by_device_and_inode() {
        let record = Installed::default().with(&directories(1, 1)).with(&directories(2, 2));
        let elsewhere = Place { conf: "/elsewhere".into(), ..Place::default() };
        let own = Directories::numbered(1, 2, elsewhere);
        assert_eq!(record.except(&own), Installed(vec![directories(2, 2)]));
        assert_eq!(record.with_bin_of(&own), Some(&directories(2, 2)));
        assert_eq!(record.with_bin_of(&directories(1, 3)), None);
    }
}
