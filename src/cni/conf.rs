//! The network configuration on standard input: the protocol's keys, Istio's, and ours.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufReader, Read};
use std::path::PathBuf;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _};
use serde_json::value::RawValue;

use super::call::is_identifier;
use super::object::Object;
use super::version::error_excerpt;
use super::{Attachment, Error, Version};
use crate::contract;
use crate::diagnostics::Level;

/// The most that is read of standard input for a verb that needs the configuration, in bytes.
///
/// All annotations of a pod come with it: 256 KiB at most, of which Go's JSON encoder makes six times as much where each
/// byte has to be escaped (`<` is `\u003c`).
pub const MAX_STDIN: usize = 8 << 20;

/// Reads a configuration to its end, or fails with [`Error::TooLarge`] after [`MAX_STDIN`] bytes.
pub fn read(from: impl Read) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::with_capacity(4 << 10);
    from.take(MAX_STDIN as u64 + 1).read_to_end(&mut bytes).map_err(Error::Read)?;
    if bytes.len() > MAX_STDIN { Err(Error::TooLarge) } else { Ok(bytes) }
}

/// Reads a JSON object of any size to its end and keeps nothing of it, for a verb that must not fail on a large one.
pub fn skip(from: impl Read) -> Result<(), Error> {
    struct Fields;
    impl<'de> Visitor<'de> for Fields {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(())
        }
    }
    let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(64 << 10, from));
    let skipped = json.deserialize_map(Fields).and_then(|()| json.end());
    skipped.map_err(|error| if error.is_io() { Error::Read(error.into()) } else { Error::Json(error) })
}

/// A configuration. Keys that are not listed here are ignored.
#[derive(Debug)]
pub struct NetConf<'a> {
    /// `cniVersion`, which runtimes set to the list's.
    pub version: Version,
    /// The network's name.
    pub name: String,
    /// What the plugin before this one has answered, byte for byte and unchecked: DEL must not stumble over it.
    pub prev_result: Option<&'a RawValue>,
    /// All annotations of the pod, where the chain entry declares the capability
    /// [`contract::POD_ANNOTATIONS_CAPABILITY`] and the runtime has it.
    pub pod_annotations: Option<BTreeMap<String, String>>,
    /// GC: the attachments that are still in use.
    pub valid_attachments: Option<Vec<Attachment>>,
    /// Istio's keys.
    pub settings: Settings,
}

/// What the installer writes into the chain entry (Istio's `PluginConfig`, and `force_iptables_binary`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `plugin_log_level`. A level is no reason to fail a pod: an unknown one means `info`.
    pub log_level: Level,
    /// `cni_agent_run_dir`: the directory of sockets, log file and kubeconfig.
    pub run_dir: PathBuf,
    /// `exclude_namespaces`: pods there are passed through.
    pub exclude_namespaces: Vec<String>,
    /// `pod_namespace`: where the agent's own pods are.
    pub agent_namespace: Option<String>,
    /// `native_nftables`: tables of their own instead of iptables' tables.
    pub native_nftables: bool,
    /// `ambient_enabled`
    pub ambient_enabled: bool,
    /// `force_iptables_binary`: use this one whatever the netns looks like.
    pub iptables_binary: Option<IptablesBinary>,
}

/// The two implementations of iptables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IptablesBinary {
    /// `iptables-legacy`: x_tables.
    Legacy,
    /// `iptables-nft`: nf_tables.
    Nft,
}

impl<'a> NetConf<'a> {
    /// Reads a configuration. Its version must be one of [`Version::ALL`]; a key of another type is
    /// [`Error::Key`], `null` is the same as absence.
    pub fn parse(json: &'a [u8]) -> Result<Self, Error> {
        let keys = Keys(serde_json::from_slice(json).map_err(Error::Json)?);
        let name: String = keys.get("name")?.unwrap_or_default();
        if name.is_empty() {
            return Err(Error::MissingName);
        }
        if !is_identifier(&name) {
            return Err(Error::NetworkName(error_excerpt(&name)));
        }
        Ok(Self {
            version: Version::of_config(&keys.get::<String>("cniVersion")?.unwrap_or_default())?,
            name,
            prev_result: keys.get("prevResult")?,
            pod_annotations: keys.pod_annotations(),
            valid_attachments: keys.get("cni.dev/valid-attachments")?,
            settings: Settings::from_keys(&keys)?,
        })
    }
}

impl Settings {
    fn from_keys(keys: &Keys<'_>) -> Result<Self, Error> {
        let run_dir: Option<String> = keys.get("cni_agent_run_dir")?;
        let run_dir = run_dir.filter(|dir| !dir.is_empty());
        let namespace: Option<String> = keys.get("pod_namespace")?;
        Ok(Self {
            log_level: Level::named(&keys.get::<String>("plugin_log_level")?.unwrap_or_default()).unwrap_or_default(),
            run_dir: run_dir.map_or_else(|| PathBuf::from(contract::RUN_DIR), PathBuf::from),
            exclude_namespaces: keys.get("exclude_namespaces")?.unwrap_or_default(),
            agent_namespace: namespace.filter(|namespace| !namespace.is_empty()),
            native_nftables: keys.get("native_nftables")?.unwrap_or_default(),
            ambient_enabled: keys.get("ambient_enabled")?.unwrap_or_default(),
            iptables_binary: IptablesBinary::named(&keys.get::<String>("force_iptables_binary")?.unwrap_or_default())?,
        })
    }
}

impl IptablesBinary {
    fn named(text: &str) -> Result<Option<Self>, Error> {
        match text {
            "" => Ok(None),
            "legacy" => Ok(Some(Self::Legacy)),
            "nft" => Ok(Some(Self::Nft)),
            other => Err(Error::Value {
                key: "force_iptables_binary",
                value: error_excerpt(other),
                allowed: "an empty string, legacy or nft",
            }),
        }
    }
}

/// The top-level object.
struct Keys<'a>(Object<'a>);

impl<'a> Keys<'a> {
    fn get<T: Deserialize<'a>>(&self, key: &'static str) -> Result<Option<T>, Error> {
        let raw = self.0.get(key).filter(|raw| raw.get() != "null");
        raw.map(|raw| serde_json::from_str(raw.get()).map_err(|error| Error::Key { key, error })).transpose()
    }

    /// A runtime's business, so never an error: whatever has another shape counts as not given, and the pod is
    /// looked up.
    fn pod_annotations(&self) -> Option<BTreeMap<String, String>> {
        let raw = self.0.get("runtimeConfig")?;
        let capabilities: Object<'_> = serde_json::from_str(raw.get()).ok()?;
        serde_json::from_str(capabilities.get(contract::POD_ANNOTATIONS_CAPABILITY)?.get()).ok()?
    }
}

#[cfg(test)]
#[path = "conf/tests.rs"]
mod tests;
