//! The record of the files that this program creates in the node's CNI configuration directory, and of the files that it replaces.
//!
//! A copy of a network looks like the network itself, so the record is the only way to recognize it after a reboot or with
//! other flags. `plan` writes the record into that directory before the files.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// The record's file name. No runtime reads files with this extension.
pub const FILE: &str = ".istio-cni.owned";

/// Names of files in the configuration directory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Record {
    /// Files that this program created: copies of a network, and configurations of the plugin alone.
    #[serde(default)]
    pub files: BTreeSet<String>,
    /// Files of other programs that contain the plugin's entry and have a name that runtimes do not read. The plugin is
    /// chained into such a file only if an operator has named it; without the record, a removal with other flags would
    /// not read the file.
    #[serde(default)]
    pub chains: BTreeSet<String>,
    /// Files of other programs that were converted to lists, by name: a removal restores them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub originals: BTreeMap<String, Original>,
}

/// A file before its conversion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Encoded", into = "Encoded")]
pub struct Original {
    pub content: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
}

/// An original in the record, encoded because its content may not be UTF-8.
#[derive(Serialize, Deserialize)]
struct Encoded {
    base64: String,
    mode: u32,
}

impl From<Original> for Encoded {
    fn from(Original { content, mode }: Original) -> Self {
        Self { base64: STANDARD.encode(content), mode }
    }
}

impl TryFrom<Encoded> for Original {
    type Error = base64::DecodeError;

    fn try_from(Encoded { base64, mode }: Encoded) -> Result<Self, Self::Error> {
        Ok(Self { content: STANDARD.decode(base64)?, mode })
    }
}

impl Record {
    /// Parses a record; returns an empty one if the file contains something else.
    pub fn parse(content: &[u8]) -> Self {
        let mut record: Self = serde_json::from_slice(content).unwrap_or_default();
        let is_name = |name: &String| !name.is_empty() && !name.contains('/');
        record.files.retain(is_name);
        record.chains.retain(is_name);
        record.originals.retain(|name, _| is_name(name));
        record
    }

    /// Returns the content of the record's file.
    pub fn text(&self) -> Vec<u8> {
        // Sets and maps of strings can always be serialized.
        let mut text = serde_json::to_vec_pretty(self).unwrap_or_default();
        text.push(b'\n');
        text
    }

    /// Whether no file is recorded.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.chains.is_empty() && self.originals.is_empty()
    }

    /// Whether a file of this name is recorded as existing.
    pub fn names(&self, name: &str) -> bool {
        self.files.contains(name) || self.chains.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_parsed_from_its_text_and_paths_are_ignored() {
        let original = Original { content: b"{\"mtu\": 1500.0}\xff".to_vec(), mode: 0o640 };
        let record = Record {
            files: ["a.conflist".to_owned()].into(),
            chains: ["b.file".to_owned()].into(),
            originals: [("c.conf".to_owned(), original)].into(),
        };
        assert_eq!(Record::parse(&record.text()), record);
        assert!(Record::parse(b"{ half").is_empty());
        assert!(Record::parse(br#"{"files": ["../10-net.conflist", ""]}"#).is_empty());
        assert!(Record::parse(br#"{"originals": {"../a.conf": {"base64": "", "mode": 420}}}"#).is_empty());
    }
}
