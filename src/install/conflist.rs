//! Network configurations as container runtimes read them, and our entry put into a chain and taken out again.
//!
//! `plan` calls it. Pure. An edit is a cut in the text: every byte that is not ours stays as it was, with its order,
//! its white space and its numbers.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::contract;

/// What a converted configuration is called where it has no name of its own (Istio's choice).
const DEFAULT_NAME: &str = "k8s-pod-network";
/// Its version where it has none (Istio's choice).
const DEFAULT_VERSION: &str = "0.3.1";

/// Why a runtime passes a file over, or why nothing can be chained into it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Not text, or not a JSON object; also what a half-written file looks like.
    #[error("it is no JSON object: {0}")]
    Json(String),
    /// A key has another type.
    #[error("`{key}` is not {expected}")]
    Key {
        /// The key.
        key: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// No plugin.
    #[error("it names no plugin")]
    NoPlugins,
    /// A plugin without a type.
    #[error("plugin {0} has no `type`")]
    NoType(usize),
    /// All its plugins are in files of their own, which come after those of the list.
    #[error("its plugins are in a directory of their own; set `plugins` in the list")]
    DropInsOnly,
}

/// A configuration that a runtime would load.
#[derive(Debug)]
pub enum Network<'a> {
    /// `.conflist`: a chain.
    List(List<'a>),
    /// `.conf`: one plugin.
    Single(Single<'a>),
}

/// A chain.
#[derive(Debug)]
pub struct List<'a> {
    text: &'a str,
    array: Range<usize>,
    plugins: Vec<Plugin<'a>>,
}

/// One plugin's configuration outside a chain.
#[derive(Debug)]
pub struct Single<'a> {
    fields: Fields<'a>,
    kind: String,
}

#[derive(Debug)]
struct Plugin<'a> {
    raw: &'a RawValue,
    kind: String,
    place: Range<usize>,
}

impl<'a> Network<'a> {
    /// Reads a file that holds one or the other, as the runtime does by the file's extension and Istio by the key `type`.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Invalid> {
        let text = std::str::from_utf8(bytes).map_err(|error| Invalid::Json(error.to_string()))?;
        let fields: Fields<'a> = serde_json::from_str(text).map_err(|error| Invalid::Json(error.to_string()))?;
        if fields.get("type").is_some() {
            let kind = plugin_type(&fields).ok_or(Invalid::Key { key: "type", expected: "a plugin's name" })?;
            return Ok(Self::Single(Single { fields, kind }));
        }
        List::read(text, &fields).map(Self::List)
    }
}

/// The network's name of a list, by which its directory of further plugins is called.
pub fn list_name(bytes: &[u8]) -> Option<String> {
    let fields: Fields<'_> = serde_json::from_slice(bytes).ok()?;
    string(fields.get("name")?)
}

impl Network<'_> {
    /// The types of all plugins but ours.
    pub fn others(&self) -> Vec<&str> {
        let kinds = match self {
            Self::List(list) => list.plugins.iter().map(|plugin| plugin.kind.as_str()).collect(),
            Self::Single(single) => vec![single.kind.as_str()],
        };
        kinds.into_iter().filter(|kind| *kind != contract::PLUGIN_NAME).collect()
    }
}

impl<'a> List<'a> {
    /// What `libcni` demands of a list (`NetworkConfFromBytes`).
    fn read(text: &'a str, fields: &Fields<'a>) -> Result<Self, Invalid> {
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
            Ok(Plugin { raw, kind, place: place(text, raw) })
        });
        Ok(Self { text, array: place(text, array), plugins: plugins.collect::<Result<_, Invalid>>()? })
    }

    /// Our entries, of which there should be one.
    pub fn entries(&self) -> impl Iterator<Item = &'a RawValue> {
        self.plugins.iter().filter(|plugin| plugin.kind == contract::PLUGIN_NAME).map(|plugin| plugin.raw)
    }

    /// The list with `entry`, an object's text, in the last place, and without older ones of ours.
    pub fn with(&self, entry: &str) -> String {
        let Some(bare) = self.without() else {
            let Range { start, end } = self.array;
            return format!("{}[\n{entry}\n]{}", &self.text[..start], &self.text[end..]);
        };
        // Reading again what has just been read and cut between two plugins.
        match Network::read(bare.as_bytes()) {
            Ok(Network::List(list)) => list.append(entry),
            _ => bare,
        }
    }

    fn append(&self, entry: &str) -> String {
        let Some(last) = self.plugins.last() else { return self.text.to_owned() };
        let before = &self.text[..last.place.start];
        let gap = &before[before.trim_end().len()..];
        let indented = match gap.rsplit_once('\n') {
            Some((_, indent)) => entry.replace('\n', &format!("\n{indent}")),
            None => entry.to_owned(),
        };
        let Range { end, .. } = last.place;
        format!("{},{gap}{indented}{}", &self.text[..end], &self.text[end..])
    }

    /// The list without our entries; nothing where no plugin is left.
    pub fn without(&self) -> Option<String> {
        let mut kept = self.plugins.iter().filter(|plugin| plugin.kind != contract::PLUGIN_NAME);
        let first = kept.next()?;
        let mut text = self.text[..self.plugins[0].place.start].to_owned();
        text.push_str(first.raw.get());
        let place_of_first = self.plugins.iter().position(|plugin| plugin.place == first.place).unwrap_or_default();
        for pair in self.plugins[place_of_first..].windows(2) {
            if pair[1].kind != contract::PLUGIN_NAME {
                // With the comma and the white space before it.
                text.push_str(&self.text[separator(self.text, &pair[1].place)]);
                text.push_str(pair[1].raw.get());
            }
        }
        let end = self.plugins.last().map_or(self.array.end, |last| last.place.end);
        text.push_str(&self.text[end..]);
        Some(text)
    }
}

/// From the comma before an element to the element.
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

    /// A list of this plugin and `entry`, under the network's own name and version where it has them: its addresses
    /// and its results are filed under that name.
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

/// `libcni` takes a boolean or its text.
fn boolean(raw: &RawValue) -> Option<bool> {
    match raw.get() {
        "true" | "\"true\"" => Some(true),
        "false" | "\"false\"" => Some(false),
        _ => None,
    }
}

/// Where `raw`, a part of `text`, is in it.
fn place(text: &str, raw: &RawValue) -> Range<usize> {
    let start = raw.get().as_ptr() as usize - text.as_ptr() as usize;
    start..start + raw.get().len()
}

/// An object's fields in their order, their values unread. Of two equal keys the later counts, as in Go.
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
