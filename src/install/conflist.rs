//! Parses network configurations as container runtimes do; inserts the plugin's entry into a chain and removes it.
//!
//! `plan` calls it. Pure. Edits are made in the text, so that every byte outside of the entry keeps its value: key order, white
//! space and number formats included.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::contract;

/// The name of a converted configuration that has none (Istio's choice).
const DEFAULT_NAME: &str = "k8s-pod-network";
/// The version of a converted configuration that has none (Istio's choice).
const DEFAULT_VERSION: &str = "0.3.1";

/// A file that a runtime ignores, or whose network cannot hold the plugin's entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The file is not UTF-8 or not a JSON object. It may be incomplete.
    #[error("the file is not a JSON object: {0}")]
    Json(String),
    /// A number that Go's `float64` cannot hold, so that `libcni` refuses the file.
    #[error("the number {0} is out of range")]
    Range(String),
    /// A key's value has the wrong type.
    #[error("`{key}` is not {expected}")]
    Key { key: &'static str, expected: &'static str },
    #[error("the file names no plugin")]
    NoPlugins,
    /// The plugin at this index, from 0, has no type.
    #[error("plugin {0} has no `type`")]
    NoType(usize),
    /// All plugins are in files of a directory, which the runtime appends to the list's own.
    #[error(
        "`plugins` is missing: the runtime reads this network's plugins from a directory of their own; list them in `plugins`"
    )]
    DropInsOnly,
}

/// A configuration that a runtime would load.
#[derive(Debug)]
pub enum Network<'a> {
    /// `.conflist`: a list of plugins.
    List(List<'a>),
    /// `.conf`: one plugin.
    Single(Single<'a>),
}

/// A list of plugins, which the runtime calls as a chain.
#[derive(Debug)]
pub struct List<'a> {
    text: &'a str,
    array: Range<usize>,
    plugins: Vec<Plugin<'a>>,
}

/// The configuration of one plugin outside of a list.
#[derive(Debug)]
pub struct Single<'a> {
    fields: Fields<'a>,
    kind: String,
}

#[derive(Debug)]
struct Plugin<'a> {
    raw: &'a RawValue,
    kind: String,
    range: Range<usize>,
}

impl<'a> Network<'a> {
    /// Parses a list or the configuration of one plugin. As in Istio, the key `type` distinguishes them; runtimes
    /// distinguish them by the file's extension.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Invalid> {
        let text = std::str::from_utf8(bytes).map_err(|error| Invalid::Json(error.to_string()))?;
        let fields: Fields<'a> = serde_json::from_str(text).map_err(|error| Invalid::Json(error.to_string()))?;
        if let Some(number) = numbers(text).find(|number| number.parse().is_ok_and(f64::is_infinite)) {
            return Err(Invalid::Range(number.to_owned()));
        }
        if fields.get("type").is_some() {
            let kind = plugin_type(&fields).ok_or(Invalid::Key { key: "type", expected: "a plugin's name" })?;
            return Ok(Self::Single(Single { fields, kind }));
        }
        List::parse(text, &fields).map(Self::List)
    }
}

/// The numbers of a valid JSON text, in the order of the text.
fn numbers(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let start = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit())?;
            rest = &rest[start..];
            let Some(string) = rest.strip_prefix('"') else {
                let (number, behind) = rest.split_at(rest.find(|c| !is_part(c)).unwrap_or(rest.len()));
                rest = behind;
                return Some(number);
            };
            rest = behind_string(string)?;
        }
    })
}

/// The text behind a JSON string, from the text behind its opening quote.
fn behind_string(text: &str) -> Option<&str> {
    let mut is_escaped = false;
    let end = text.find(|c| {
        let is_end = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    })?;
    text.get(end + 1..)
}

/// The network name of a list. The directory from which runtimes load further plugins of the list has the same name.
pub fn list_name(bytes: &[u8]) -> Option<String> {
    let fields: Fields<'_> = serde_json::from_slice(bytes).ok()?;
    string(fields.get("name")?)
}

impl Network<'_> {
    /// Returns the types of the network's plugins, without `istio-cni`.
    pub fn other_plugins(&self) -> Vec<&str> {
        let kinds = match self {
            Self::List(list) => list.plugins.iter().map(|plugin| plugin.kind.as_str()).collect(),
            Self::Single(single) => vec![single.kind.as_str()],
        };
        kinds.into_iter().filter(|kind| *kind != contract::PLUGIN_NAME).collect()
    }
}

impl<'a> List<'a> {
    /// Validates a list as `libcni` does (`NetworkConfFromBytes`).
    fn parse(text: &'a str, fields: &Fields<'a>) -> Result<Self, Invalid> {
        fields.get("name").and_then(string).ok_or(Invalid::Key { key: "name", expected: "a string" })?;
        if fields.get("cniVersion").is_some_and(|raw| string(raw).is_none()) {
            return Err(Invalid::Key { key: "cniVersion", expected: "a string" });
        }
        if fields.get("cniVersions").is_some_and(|raw| serde_json::from_str::<Vec<String>>(raw.get()).is_err()) {
            return Err(Invalid::Key { key: "cniVersions", expected: "a list of strings" });
        }
        for key in ["disableCheck", "disableGC", "loadOnlyInlinedPlugins"] {
            if fields.get(key).is_some_and(|raw| boolean(raw).is_none()) {
                return Err(Invalid::Key { key, expected: "true or false" });
            }
        }
        let Some(array) = fields.get("plugins") else {
            let inlined_only = fields.get("loadOnlyInlinedPlugins").and_then(boolean).unwrap_or(false);
            return Err(if inlined_only { Invalid::NoPlugins } else { Invalid::DropInsOnly });
        };
        let elements: Vec<&'a RawValue> = serde_json::from_str(array.get())
            .map_err(|_| Invalid::Key { key: "plugins", expected: "a list of objects" })?;
        if elements.is_empty() {
            return Err(Invalid::NoPlugins);
        }
        let plugins = elements.into_iter().enumerate().map(|(index, raw)| {
            let fields: Option<Fields<'a>> = serde_json::from_str(raw.get()).ok();
            let kind = fields.as_ref().and_then(plugin_type).ok_or(Invalid::NoType(index))?;
            Ok(Plugin { raw, kind, range: range_in(text, raw) })
        });
        Ok(Self { text, array: range_in(text, array), plugins: plugins.collect::<Result<_, Invalid>>()? })
    }

    /// The entries of `istio-cni` in the list. An installed list has exactly one.
    pub fn entries(&self) -> impl Iterator<Item = &'a RawValue> {
        self.plugins.iter().filter(|plugin| plugin.kind == contract::PLUGIN_NAME).map(|plugin| plugin.raw)
    }

    /// The list with `entry`, the text of a JSON object, at its end, and without other entries of the plugin.
    pub fn with_entry(&self, entry: &str) -> String {
        let Some(bare) = self.without_entry() else {
            let Range { start, end } = self.array;
            return format!("{}[\n{entry}\n]{}", &self.text[..start], &self.text[end..]);
        };
        // `bare` is a valid list, because `without_entry` removes only whole plugins from a parsed list.
        match Network::parse(bare.as_bytes()) {
            Ok(Network::List(list)) => list.append(entry),
            _ => bare,
        }
    }

    fn append(&self, entry: &str) -> String {
        let Some(last) = self.plugins.last() else { return self.text.to_owned() };
        let before = &self.text[..last.range.start];
        let gap = &before[before.trim_end().len()..];
        let indented = match gap.rsplit_once('\n') {
            Some((_, indent)) => entry.replace('\n', &format!("\n{indent}")),
            None => entry.to_owned(),
        };
        let Range { end, .. } = last.range;
        format!("{},{gap}{indented}{}", &self.text[..end], &self.text[end..])
    }

    /// The list without the plugin's entries; `None` if no other plugin is left.
    pub fn without_entry(&self) -> Option<String> {
        let mut kept = self.plugins.iter().filter(|plugin| plugin.kind != contract::PLUGIN_NAME);
        let first = kept.next()?;
        let mut text = self.text[..self.plugins[0].range.start].to_owned();
        text.push_str(first.raw.get());
        let first_index = self.plugins.iter().position(|plugin| plugin.range == first.range).unwrap_or_default();
        for pair in self.plugins[first_index..].windows(2) {
            if pair[1].kind != contract::PLUGIN_NAME {
                // Keeps the comma and the white space before the plugin.
                text.push_str(&self.text[separator(self.text, &pair[1].range)]);
                text.push_str(pair[1].raw.get());
            }
        }
        let end = self.plugins.last().map_or(self.array.end, |last| last.range.end);
        text.push_str(&self.text[end..]);
        Some(text)
    }
}

/// The range from the comma before an element to the element.
fn separator(text: &str, element: &Range<usize>) -> Range<usize> {
    let before = text[..element.start].trim_end();
    let comma = before.strip_suffix(',').unwrap_or(before);
    comma.trim_end().len()..element.start
}

impl Single<'_> {
    /// The plugin's type.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// A list of this plugin and `entry`. It keeps the name and the version of the configuration, if they exist: IPAM
    /// plugins and the runtime's cache store their state under the network's name.
    pub fn chained(&self, entry: &str) -> String {
        let own = |key: &str| self.fields.get(key).and_then(string).filter(|text| !text.is_empty());
        let version = own("cniVersion").unwrap_or_else(|| DEFAULT_VERSION.to_owned());
        let name = own("name").unwrap_or_else(|| DEFAULT_NAME.to_owned());
        let inner: Vec<String> = (self.fields.0.iter())
            .filter(|(key, _)| key != "cniVersion")
            .map(|(key, raw)| format!("      {}: {}", quoted(key), raw.get()))
            .collect();
        let entry = entry.replace('\n', "\n    ");
        format!(
            "{{\n  \"cniVersion\": {},\n  \"name\": {},\n  \"plugins\": [\n    {{\n{}\n    }},\n    {entry}\n  ]\n}}\n",
            quoted(&version),
            quoted(&name),
            inner.join(",\n"),
        )
    }
}

/// Whether two texts are the same JSON value.
pub fn same_value(a: &str, b: &str) -> bool {
    let value = |text| serde_json::from_str::<serde_json::Value>(text).ok();
    matches!((value(a), value(b)), (Some(a), Some(b)) if a == b)
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn plugin_type(fields: &Fields<'_>) -> Option<String> {
    fields.get("type").and_then(string).filter(|kind| !kind.is_empty())
}

fn string(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

/// Parses a boolean, or a string that contains one, as `libcni` does.
fn boolean(raw: &RawValue) -> Option<bool> {
    match raw.get() {
        "true" | "\"true\"" => Some(true),
        "false" | "\"false\"" => Some(false),
        _ => None,
    }
}

/// The range of `raw` in `text`, of which it is a slice.
fn range_in(text: &str, raw: &RawValue) -> Range<usize> {
    let start = raw.get().as_ptr() as usize - text.as_ptr() as usize;
    start..start + raw.get().len()
}

/// The fields of an object in their order, with unparsed values. The last of equal keys applies, as in Go.
#[derive(Debug)]
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Fields<'a> {
    fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, raw)| *raw)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Object).map(Fields)
    }
}

#[cfg(test)]
mod tests;
