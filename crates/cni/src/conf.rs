//! The network configuration on standard input: the keys of the protocol, of Istio and of this project.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufReader, Read};
use std::path::PathBuf;

use contract::diagnostics::Level;
use contract::{IptablesBinary, config_key};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _};
use serde_json::value::RawValue;

use super::call::is_identifier;
use super::error::excerpt;
use super::object::Object;
use super::{Error, MAX_STDIN, Version};

/// Reads a configuration to its end; fails with [`Error::TooLarge`] after [`MAX_STDIN`] bytes.
pub fn read(from: impl Read) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::with_capacity(4 << 10);
    from.take(MAX_STDIN as u64 + 1).read_to_end(&mut bytes).map_err(Error::Read)?;
    if bytes.len() > MAX_STDIN { Err(Error::TooLarge) } else { Ok(bytes) }
}

/// Reads a JSON object of any size to its end and discards it, for verbs that must not fail on a large one.
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

/// A network configuration. Unknown keys are ignored.
#[derive(Debug)]
pub struct NetConf<'a> {
    /// `cniVersion`, which runtimes copy from the network configuration list.
    pub version: Version,
    pub name: String,
    /// The previous plugin's result, byte for byte and unchecked: an invalid one must not make DEL fail.
    pub prev_result: Option<&'a RawValue>,
    /// All annotations of the pod, if the chain entry declares [`contract::POD_ANNOTATIONS_CAPABILITY`] and the runtime
    /// supports it.
    pub pod_annotations: Option<BTreeMap<String, String>>,
    pub settings: PluginSettings,
}

/// The keys that the installer writes into the chain entry: those of Istio's `PluginConfig`, `force_iptables_binary` and
/// `refuse_sandboxes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginSettings {
    /// `plugin_log_level`. An unknown level means `info`: a log level must not fail a pod.
    pub log_level: Level,
    /// `cni_agent_run_dir`: the directory of sockets, log file and kubeconfig.
    pub run_dir: PathBuf,
    /// `exclude_namespaces`: pods in these namespaces are not redirected.
    pub exclude_namespaces: Vec<String>,
    /// `pod_namespace`: the namespace of the agent's own pods.
    pub agent_namespace: Option<String>,
    /// `native_nftables`: program separate nftables tables instead of the tables of iptables.
    pub native_nftables: bool,
    /// `ambient_enabled`
    pub ambient_enabled: bool,
    /// `force_iptables_binary`: use this implementation whatever rules the netns already has.
    pub iptables_binary: Option<IptablesBinary>,
    /// `refuse_sandboxes`: ADD fails for pods in sandboxed runtimes (gVisor, Kata), which the rules do not reach.
    pub refuse_sandboxes: bool,
}

impl<'a> NetConf<'a> {
    /// Parses a configuration. Its version must be one of [`Version::ALL`]. A value of the wrong type is
    /// [`Error::Key`]; `null` is the same as an absent key.
    pub fn parse(json: &'a [u8]) -> Result<Self, Error> {
        let keys = Keys(serde_json::from_slice(json).map_err(Error::Json)?);
        let name: String = keys.get("name")?.unwrap_or_default();
        if name.is_empty() {
            return Err(Error::MissingName);
        }
        if !is_identifier(&name) {
            return Err(Error::NetworkName(excerpt(&name)));
        }
        Ok(Self {
            version: version(&keys.get::<String>("cniVersion")?.unwrap_or_default())?,
            name,
            prev_result: keys.get("prevResult")?,
            pod_annotations: keys.pod_annotations(),
            settings: PluginSettings::from_keys(&keys)?,
        })
    }
}

/// The keys that the stub of a removed plugin reads. The configuration's other keys may be from any version.
#[derive(Debug)]
pub struct Removed<'a> {
    pub run_dir: PathBuf,
    /// The result to pass on, byte for byte.
    pub prev_result: Option<&'a RawValue>,
    /// `cniVersion`, if it is a non-empty string.
    pub version: Option<String>,
}

impl<'a> Removed<'a> {
    /// Parses a configuration; fails only if `json` is not an object. A value of the wrong type is treated as absent.
    pub fn parse(json: &'a [u8]) -> Result<Self, Error> {
        let keys = Keys(serde_json::from_slice(json).map_err(Error::Json)?);
        let text = |key| keys.get::<String>(key).ok().flatten().filter(|text| !text.is_empty());
        let run_dir = text(config_key::RUN_DIR).map_or_else(|| PathBuf::from(contract::RUN_DIR), PathBuf::from);
        Ok(Self { run_dir, prev_result: keys.get("prevResult")?, version: text("cniVersion") })
    }
}

/// Parses a configuration's `cniVersion`; an empty one means 0.1.0. Unknown versions are [`Error::Version`].
fn version(text: &str) -> Result<Version, Error> {
    if text.is_empty() {
        return Ok(Version::V0_1_0);
    }
    Version::find(text).ok_or_else(|| Error::Version(excerpt(text)))
}

impl PluginSettings {
    fn from_keys(keys: &Keys<'_>) -> Result<Self, Error> {
        let run_dir: Option<String> = keys.get(config_key::RUN_DIR)?;
        let run_dir = run_dir.filter(|dir| !dir.is_empty());
        let namespace: Option<String> = keys.get(config_key::AGENT_NAMESPACE)?;
        Ok(Self {
            log_level: Level::named(&keys.get::<String>(config_key::LOG_LEVEL)?.unwrap_or_default())
                .unwrap_or_default(),
            run_dir: run_dir.map_or_else(|| PathBuf::from(contract::RUN_DIR), PathBuf::from),
            exclude_namespaces: keys.get(config_key::EXCLUDE_NAMESPACES)?.unwrap_or_default(),
            agent_namespace: namespace.filter(|namespace| !namespace.is_empty()),
            native_nftables: keys.get(config_key::NATIVE_NFTABLES)?.unwrap_or_default(),
            ambient_enabled: keys.get(config_key::AMBIENT_ENABLED)?.unwrap_or_default(),
            iptables_binary: iptables_binary(&keys.get::<String>(config_key::IPTABLES_BINARY)?.unwrap_or_default())?,
            refuse_sandboxes: keys.get(config_key::REFUSE_SANDBOXES)?.unwrap_or_default(),
        })
    }
}

/// Parses `force_iptables_binary`; an empty string requires no implementation.
fn iptables_binary(text: &str) -> Result<Option<IptablesBinary>, Error> {
    if text.is_empty() {
        return Ok(None);
    }
    let invalid = || Error::Value {
        key: config_key::IPTABLES_BINARY,
        value: excerpt(text),
        allowed: "an empty string, legacy or nft",
    };
    IptablesBinary::named(text).map(Some).ok_or_else(invalid)
}

/// The configuration's top-level object.
struct Keys<'a>(Object<'a>);

impl<'a> Keys<'a> {
    fn get<T: Deserialize<'a>>(&self, key: &'static str) -> Result<Option<T>, Error> {
        let raw = self.0.get(key).filter(|raw| raw.get() != "null");
        raw.map(|raw| serde_json::from_str(raw.get()).map_err(|error| Error::Key { key, error })).transpose()
    }

    /// Returns the pod's annotations, or `None` if they are absent or malformed; the pod is then looked up. The runtime
    /// writes this key, so a malformed value must not fail the pod.
    fn pod_annotations(&self) -> Option<BTreeMap<String, String>> {
        let raw = self.0.get("runtimeConfig")?;
        let capabilities: Object<'_> = serde_json::from_str(raw.get()).ok()?;
        serde_json::from_str(capabilities.get(contract::POD_ANNOTATIONS_CAPABILITY)?.get()).ok()?
    }
}

#[cfg(test)]
mod tests;
