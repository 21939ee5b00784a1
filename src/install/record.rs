//! The record of this project's files in the node's CNI configuration directory.
//!
//! `plan` writes it into that directory before the files themselves, so that it outlives reboots, modes and flags: a copy of
//! a network cannot be told from the network itself, and a runtime loads whichever comes first.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Its file name, whose extension no runtime reads.
pub const FILE: &str = ".istio-cni.owned";

/// Names of files in the configuration directory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Record {
    /// Files that are ours as a whole: copies of a network, and configurations of the plugin alone.
    #[serde(default)]
    pub files: BTreeSet<String>,
    /// Files of others that hold our entry and that are looked at only because an operator has named them.
    #[serde(default)]
    pub chains: BTreeSet<String>,
}

impl Record {
    /// The record of a file; empty where the file holds something else.
    pub fn parse(content: &[u8]) -> Self {
        let mut record: Self = serde_json::from_slice(content).unwrap_or_default();
        let is_name = |name: &String| !name.is_empty() && !name.contains('/');
        record.files.retain(is_name);
        record.chains.retain(is_name);
        record
    }

    /// The file's content.
    pub fn text(&self) -> Vec<u8> {
        // Sets of strings: nothing that JSON lacks.
        let mut text = serde_json::to_vec_pretty(self).unwrap_or_default();
        text.push(b'\n');
        text
    }

    /// Whether no file is recorded.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.chains.is_empty()
    }

    /// Whether a file of this name is recorded.
    pub fn names(&self, name: &str) -> bool {
        self.files.contains(name) || self.chains.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_its_file_and_names_no_path() {
        let record = Record { files: ["a.conflist".to_owned()].into(), chains: ["b.file".to_owned()].into() };
        assert_eq!(Record::parse(&record.text()), record);
        assert!(Record::parse(b"{ half").is_empty());
        assert!(Record::parse(br#"{"files": ["../10-net.conflist", ""]}"#).is_empty());
    }
}
