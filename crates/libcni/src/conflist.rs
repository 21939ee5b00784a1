//! Decodes network configurations as container runtimes do; inserts the plugin's entry into a chain and removes it.
//!
//! `install::plan` calls it. Pure. An edit only cuts and inserts bytes of the file, so that everything outside of the entry stays:
//! key order, white space, number formats, duplicate keys, and bytes that are not UTF-8.

mod decode;
mod delegates;

use std::ops::Range;

use super::json;
use decode::Members;

pub use delegates::{Delegate, Shim, delegated_network, paths, without_delegated};

/// The name of a converted configuration that has none (Istio's choice).
const DEFAULT_NAME: &str = "k8s-pod-network";
/// The version of a converted configuration that has none (Istio's choice).
const DEFAULT_VERSION: &str = "0.3.1";

/// Why a runtime refuses a file, or why its network cannot hold the plugin's entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The file is not JSON, perhaps because another program is still writing it.
    #[error("the file is not JSON: {0}")]
    Json(json::Error),
    #[error("the file is not a JSON object")]
    NotObject,
    /// A number that Go's `float64` cannot hold, so that `libcni` refuses the file.
    #[error("the number {0} is out of range")]
    Range(String),
    /// A key's value has the wrong type.
    #[error("`{key}` is not {expected}")]
    Key { key: &'static str, expected: &'static str },
    /// `cniVersions`, or `cniVersion` of a list with `cniVersions`, holds a version that `libcni` cannot parse.
    #[error("{0:?} is no version")]
    Version(String),
    #[error("the file names no plugin")]
    NoPlugins,
    #[error("`type` is missing or empty")]
    NoType,
    /// The plugin at this index in a list, counted from 0, is refused.
    #[error("plugin {index}: {reason}")]
    Plugin { index: usize, reason: Box<Self> },
    /// The file of a drop-in plugin is refused.
    #[error("{file}, a plugin of this network: {reason}")]
    DropIn { file: String, reason: Box<Self> },
    /// The list has no `plugins`, so that its network consists of drop-in plugins only.
    #[error(
        "`plugins` is missing: the runtime reads this network's plugins from a directory of their own; list them in `plugins`"
    )]
    DropInsOnly,
}

impl From<json::Error> for Invalid {
    fn from(error: json::Error) -> Self {
        Self::Json(error)
    }
}

/// A configuration that a runtime would load.
#[derive(Debug)]
pub enum Network<'a> {
    /// `.conflist`: a list of plugins.
    List(List<'a>),
    /// `.conf` and `.json`: one plugin.
    Single(Single<'a>),
}

/// A list of plugins, which the runtime calls as a chain.
#[derive(Debug)]
pub struct List<'a> {
    bytes: &'a [u8],
    name: String,
    version: String,
    array: Range<usize>,
    plugins: Vec<Plugin>,
}

/// The configuration of one plugin outside of a list.
#[derive(Debug)]
pub struct Single<'a> {
    bytes: &'a [u8],
    kind: String,
    name: Option<String>,
    version: Option<String>,
    /// The byte ranges of the key and the value of each member other than `cniVersion`.
    members: Vec<[Range<usize>; 2]>,
}

#[derive(Debug)]
struct Plugin {
    kind: String,
    range: Range<usize>,
}

/// Whether containerd or CRI-O reads files of this name. The name may be the extension alone.
pub fn is_read(name: &str) -> bool {
    [".conf", ".conflist", ".json"].iter().any(|extension| name.ends_with(extension))
}

impl<'a> Network<'a> {
    /// Decodes a file as runtimes do: a `.conflist` as a list and a `.conf` or `.json` as one plugin, whatever its content. Files
    /// with other extensions, which runtimes do not read, are decoded by content.
    pub fn of_file(name: &str, bytes: &'a [u8]) -> Result<Self, Invalid> {
        match name.rsplit_once('.') {
            Some((_, "conflist")) => List::decode(bytes).map(Self::List),
            Some((_, "conf" | "json")) => Single::decode(bytes).map(Self::Single),
            _ => Self::parse(bytes),
        }
    }

    /// Decodes the configuration of one plugin if the file has the key `type`, as in Istio, and a list otherwise.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Invalid> {
        let has_type = decode::fields(&decode::map(bytes)?)?.contains_key("type");
        if has_type { Single::decode(bytes).map(Self::Single) } else { List::decode(bytes).map(Self::List) }
    }

    /// Returns the network's name.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::List(list) => Some(list.name()),
            Self::Single(single) => single.name.as_deref(),
        }
    }

    /// Whether a plugin of the network is Multus, which runs other networks.
    pub fn is_of_multus(&self) -> bool {
        self.other_plugins().into_iter().any(|kind| delegates::MULTUS.contains(&kind))
    }

    /// Returns the version of the specification that the runtime passes to the network's plugins, as a list; an empty one means 0.1.0.
    pub fn version(&self) -> &str {
        match self {
            Self::List(list) => &list.version,
            Self::Single(single) => single.version.as_deref().unwrap_or(DEFAULT_VERSION),
        }
    }

    /// Returns the types of the network's plugins, without `istio-cni`.
    pub fn other_plugins(&self) -> Vec<&str> {
        let kinds = match self {
            Self::List(list) => list.kinds().collect(),
            Self::Single(single) => vec![single.kind.as_str()],
        };
        kinds.into_iter().filter(|kind| *kind != contract::PLUGIN_NAME).collect()
    }
}

/// Returns the name of the directory with a list's drop-in plugins: plugin configurations `*.conf`, which `libcni` appends to the
/// list. The directory is in the list's directory and has the network's name, which may be a path, or empty. `None` if the file is
/// not a list, or sets `loadOnlyInlinedPlugins`.
pub fn drop_in_directory(bytes: &[u8]) -> Option<String> {
    let document = decode::map(bytes).ok()?;
    let (name, loads_drop_ins) = decode::header(&decode::fields(&document).ok()?).ok()?;
    loads_drop_ins.then_some(name)
}

/// Decodes the file of a drop-in plugin; returns the plugin's type.
pub fn decode_drop_in(bytes: &[u8]) -> Result<String, Invalid> {
    decode::drop_in(bytes)
}

impl<'a> List<'a> {
    /// Decodes a list as `libcni` does (`NetworkConfFromBytes`).
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Invalid> {
        let document = decode::map(bytes)?;
        let fields = decode::fields(&document)?;
        let (name, loads_drop_ins) = decode::header(&fields)?;
        let Some(array) = fields.get("plugins") else {
            return Err(if loads_drop_ins { Invalid::DropInsOnly } else { Invalid::NoPlugins });
        };
        if array.kind() != json::Kind::Array {
            return Err(Invalid::Key { key: "plugins", expected: "a list of objects" });
        }
        let plugins = array.elements().enumerate().map(|(index, value)| {
            let kind = decode::plugin(value, Members::OfMap)
                .map_err(|reason| Invalid::Plugin { index, reason: Box::new(reason) })?;
            Ok(Plugin { kind, range: value.range() })
        });
        let plugins: Vec<Plugin> = plugins.collect::<Result<_, Invalid>>()?;
        if plugins.is_empty() {
            return Err(Invalid::NoPlugins);
        }
        Ok(Self { bytes, name, version: decode::version(&fields), array: array.range(), plugins })
    }

    /// Returns the network's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the types of the plugins, in their order.
    pub fn kinds(&self) -> impl ExactSizeIterator<Item = &str> + DoubleEndedIterator {
        self.plugins.iter().map(|plugin| plugin.kind.as_str())
    }

    fn text(&self, plugin: &Plugin) -> &'a [u8] {
        &self.bytes[plugin.range.clone()]
    }

    /// Returns the entries of `istio-cni` in the list, as JSON. An installed list has exactly one.
    pub fn entries(&self) -> impl Iterator<Item = &'a [u8]> {
        self.plugins.iter().filter(|plugin| plugin.is_ours()).map(|plugin| self.text(plugin))
    }

    /// Returns the list with `entry`, a JSON object, at its end, and without other entries of the plugin.
    pub fn with_entry(&self, entry: &str) -> Vec<u8> {
        let Some(bare) = self.without_entry() else {
            let Range { start, end } = self.array;
            return [&self.bytes[..start], b"[\n", entry.as_bytes(), b"\n]", &self.bytes[end..]].concat();
        };
        // `bare` is a valid list, because `without_entry` removes only whole plugins from a decoded list.
        match List::decode(&bare) {
            Ok(list) => list.append(entry),
            Err(_) => bare,
        }
    }

    fn append(&self, entry: &str) -> Vec<u8> {
        let Some(last) = self.plugins.last() else { return self.bytes.to_owned() };
        let before = &self.bytes[..last.range.start];
        let gap = &before[before.trim_ascii_end().len()..];
        let indent = gap.rsplit(|byte| *byte == b'\n').next().filter(|_| gap.contains(&b'\n'));
        let indented = match indent.map(String::from_utf8_lossy) {
            Some(indent) => entry.replace('\n', &format!("\n{indent}")),
            None => entry.to_owned(),
        };
        let Range { end, .. } = last.range;
        [&self.bytes[..end], b",", gap, indented.as_bytes(), &self.bytes[end..]].concat()
    }

    /// Returns the list without the plugin's entries; `None` if no other plugin is left.
    pub fn without_entry(&self) -> Option<Vec<u8>> {
        let first_index = self.plugins.iter().position(|plugin| !plugin.is_ours())?;
        let mut text = self.bytes[..self.plugins[0].range.start].to_owned();
        text.extend_from_slice(self.text(&self.plugins[first_index]));
        for pair in self.plugins[first_index..].windows(2) {
            if !pair[1].is_ours() {
                // Keeps the comma and the white space before the plugin.
                text.extend_from_slice(&self.bytes[separator(self.bytes, &pair[1].range)]);
                text.extend_from_slice(self.text(&pair[1]));
            }
        }
        let end = self.plugins.last().map_or(self.array.end, |last| last.range.end);
        text.extend_from_slice(&self.bytes[end..]);
        Some(text)
    }
}

impl Plugin {
    fn is_ours(&self) -> bool {
        self.kind == contract::PLUGIN_NAME
    }
}

/// Returns the range from the comma before an element to the element.
fn separator(bytes: &[u8], element: &Range<usize>) -> Range<usize> {
    let before = bytes[..element.start].trim_ascii_end();
    let comma = before.strip_suffix(b",").unwrap_or(before);
    comma.trim_ascii_end().len()..element.start
}

impl<'a> Single<'a> {
    /// Decodes the configuration of one plugin as runtimes do (`ConfFromBytes`, then `ConfListFromConf`).
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Invalid> {
        let document = decode::map(bytes)?;
        if !matches!(document.root().kind(), json::Kind::Object | json::Kind::Null) {
            return Err(Invalid::NotObject);
        }
        let kind = decode::single(&document)?;
        let field = |name| decode::field(document.root(), name, Members::All).filter(|text| !text.is_empty());
        let members = document.root().members();
        let members = members.filter(|(key, _)| key.text().is_none_or(|key| key != "cniVersion"));
        let members = members.map(|(key, value)| [key.range(), value.range()]).collect();
        Ok(Self { bytes, kind, name: field("name"), version: field("cniVersion"), members })
    }

    /// Returns the plugin's type.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns a list of this plugin and `entry`. It keeps the name and the version of the configuration, if they exist: IPAM
    /// plugins and the runtime's cache store their state under the network's name.
    pub fn chained(&self, entry: &str) -> Vec<u8> {
        let version = quoted(self.version.as_deref().unwrap_or(DEFAULT_VERSION));
        let name = quoted(self.name.as_deref().unwrap_or(DEFAULT_NAME));
        let member = |[key, value]: &[Range<usize>; 2]| {
            [&b"      "[..], &self.bytes[key.clone()], b": ", &self.bytes[value.clone()]].concat()
        };
        let inner: Vec<Vec<u8>> = self.members.iter().map(member).collect();
        let entry = entry.replace('\n', "\n    ");
        let before = format!("{{\n  \"cniVersion\": {version},\n  \"name\": {name},\n  \"plugins\": [\n    {{\n");
        let after = format!("\n    }},\n    {entry}\n  ]\n}}\n");
        [before.into_bytes(), inner.join(b",\n".as_slice()), after.into_bytes()].concat()
    }
}

/// Whether two byte strings are the same JSON value.
pub fn same_value(a: &[u8], b: &[u8]) -> bool {
    let value = |text| serde_json::from_slice::<serde_json::Value>(text).ok();
    matches!((value(a), value(b)), (Some(a), Some(b)) if a == b)
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests;
