//! Decides which network configurations container runtimes accept: the rules of `libcni` v1.3.0. Pure.
//!
//! `libcni` decodes with Go's `encoding/json`, into maps (`NetworkConfFromBytes`) and into the struct `PluginConf`
//! (`NetworkPluginConfFromBytes`). Keys of a map are exact, and the last of equal ones applies. Keys of a struct match without
//! regard to case, and null leaves the field as it is. The suite `conflists` compares the verdicts with `libcni`'s.

use std::collections::BTreeMap;

use super::Invalid;
use crate::json::{Document, Kind, MAX_DEPTH, Value};

/// The type of a Go struct's field.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Texts,
    /// `map[string]bool`.
    Flags,
    /// `map[string]interface{}`.
    Map,
    Struct(&'static [Field]),
    Structs(&'static [Field]),
}

type Field = (&'static str, Shape);

/// The fields of `libcni`'s `PluginConf`.
const PLUGIN: &[Field] = &[
    ("cniVersion", Shape::Text),
    ("name", Shape::Text),
    ("type", Shape::Text),
    ("capabilities", Shape::Flags),
    ("ipam", Shape::Struct(&[("type", Shape::Text)])),
    ("dns", Shape::Struct(DNS)),
    ("prevResult", Shape::Map),
    ("cni.dev/valid-attachments", Shape::Structs(&[("containerID", Shape::Text), ("ifname", Shape::Text)])),
];

const DNS: &[Field] =
    &[("nameservers", Shape::Texts), ("domain", Shape::Text), ("search", Shape::Texts), ("options", Shape::Texts)];

/// Which members of an object Go decodes into a struct, and in which order.
#[derive(Debug, Clone, Copy)]
pub(super) enum Members {
    /// All of them, in document order.
    All,
    /// The last one of each key, sorted by key: `libcni` first decodes the object into a map, and encodes that map again.
    OfMap,
}

impl Members {
    fn of(self, value: Value<'_>) -> Vec<(String, Value<'_>)> {
        let all = value.members().map(|(key, value)| (key.text().unwrap_or_default(), value));
        match self {
            Self::All => all.collect(),
            Self::OfMap => all.collect::<BTreeMap<_, _>>().into_iter().collect(),
        }
    }
}

/// Scans a document and refuses numbers that Go's `float64` cannot hold, as Go does when it decodes into a map.
pub(super) fn map(bytes: &[u8]) -> Result<Document<'_>, Invalid> {
    let document = Document::scan(bytes)?;
    check_numbers(document.root())?;
    Ok(document)
}

fn check_numbers(value: Value<'_>) -> Result<(), Invalid> {
    let found = value.numbers().find(|number| number.parse().is_ok_and(f64::is_infinite));
    found.map_or(Ok(()), |number| Err(Invalid::Range(number.to_owned())))
}

/// Returns the values of the document's object by their exact keys; null is an empty object.
pub(super) fn fields<'d>(document: &'d Document<'_>) -> Result<BTreeMap<String, Value<'d>>, Invalid> {
    match document.root().kind() {
        Kind::Object | Kind::Null => Ok(Members::OfMap.of(document.root()).into_iter().collect()),
        _ => Err(Invalid::NotObject),
    }
}

/// Decodes a file of one plugin, and its conversion to a list (`ConfListFromConf`), which nests two levels deeper; returns the
/// plugin's type.
pub(super) fn single(document: &Document<'_>) -> Result<String, Invalid> {
    if document.depth + 2 > MAX_DEPTH {
        return Err(crate::json::Error::Depth.into());
    }
    plugin(document.root(), Members::All)?;
    plugin(document.root(), Members::OfMap)
}

/// Decodes the file of a drop-in plugin, which `libcni` does not decode into a map first; returns the plugin's type.
pub(super) fn drop_in(bytes: &[u8]) -> Result<String, Invalid> {
    plugin(Document::scan(bytes)?.root(), Members::All)
}

/// Decodes the configuration of a plugin into Go's struct; returns the plugin's type.
pub(super) fn plugin(value: Value<'_>, members: Members) -> Result<String, Invalid> {
    check("plugin", value, Shape::Struct(PLUGIN), members)?;
    field(value, "type", members).filter(|kind| !kind.is_empty()).ok_or(Invalid::NoType)
}

/// Returns the value of a struct's string field: the last string among the keys that name the field.
pub(super) fn field(value: Value<'_>, name: &str, members: Members) -> Option<String> {
    let named = members.of(value).into_iter().filter(|(key, _)| is_field(key, name));
    named.filter_map(|(_, value)| value.text()).next_back()
}

/// Whether a key names a field, without regard to case as in Go, which equates `ſ` with `s` and the Kelvin sign with `k`.
fn is_field(key: &str, name: &str) -> bool {
    let fold = |c| match c {
        'ſ' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    key.chars().map(fold).eq(name.chars().map(fold))
}

fn check(key: &'static str, value: Value<'_>, shape: Shape, members: Members) -> Result<(), Invalid> {
    let all =
        |has: fn(Kind) -> bool| value.elements().all(|element| element.kind() == Kind::Null || has(element.kind()));
    let (is_right, expected) = match (shape, value.kind()) {
        (_, Kind::Null) => return Ok(()),
        (Shape::Text, kind) => (kind == Kind::String, "a string"),
        (Shape::Texts, kind) => (kind == Kind::Array && all(|kind| kind == Kind::String), "a list of strings"),
        (Shape::Flags, kind) => {
            let mut flags = members.of(value).into_iter().map(|(_, flag)| flag.kind());
            let are_flags = flags.all(|flag| matches!(flag, Kind::Null | Kind::Bool(_)));
            (kind == Kind::Object && are_flags, "an object of true and false")
        }
        (Shape::Map, Kind::Object) => return check_numbers(value),
        (Shape::Map, _) => (false, "an object"),
        (Shape::Struct(fields), Kind::Object) => return check_fields(value, fields, members),
        (Shape::Struct(_), _) => (false, "an object"),
        (Shape::Structs(fields), Kind::Array) => {
            return value.elements().try_for_each(|element| check(key, element, Shape::Struct(fields), members));
        }
        (Shape::Structs(_), _) => (false, "a list of objects"),
    };
    if is_right { Ok(()) } else { Err(Invalid::Key { key, expected }) }
}

fn check_fields(value: Value<'_>, fields: &'static [Field], members: Members) -> Result<(), Invalid> {
    members.of(value).into_iter().try_for_each(|(key, value)| {
        let field = fields.iter().find(|(name, _)| is_field(&key, name));
        field.map_or(Ok(()), |(name, shape)| check(name, value, *shape, members))
    })
}

/// Decodes a list's keys other than `plugins`; returns the list's name and whether the runtime loads drop-in plugins.
pub(super) fn header(fields: &BTreeMap<String, Value<'_>>) -> Result<(String, bool), Invalid> {
    let text = |key| fields.get(key).map(|value| value.text().ok_or(Invalid::Key { key, expected: "a string" }));
    let name = text("name").unwrap_or(Err(Invalid::Key { key: "name", expected: "a string" }))?;
    let version = text("cniVersion").transpose()?;
    if let Some(versions) = fields.get("cniVersions") {
        check_versions(*versions, version.as_deref())?;
    }
    flag(fields, "disableCheck")?;
    flag(fields, "disableGC")?;
    let inlined_only = flag(fields, "loadOnlyInlinedPlugins")?;
    Ok((name, !inlined_only))
}

fn check_versions(versions: Value<'_>, version: Option<&str>) -> Result<(), Invalid> {
    let invalid = Invalid::Key { key: "cniVersions", expected: "a list of strings" };
    if versions.kind() != Kind::Array {
        return Err(invalid);
    }
    for element in versions.elements() {
        let text = element.text().ok_or_else(|| invalid.clone())?;
        if !is_version(&text) {
            return Err(Invalid::Version(text));
        }
    }
    match version {
        Some(text) if !is_version(text) => Err(Invalid::Version(text.to_owned())),
        _ => Ok(()),
    }
}

/// Whether `libcni`'s `ParseVersion` accepts a version.
fn is_version(text: &str) -> bool {
    numbers(text).is_some()
}

/// Parses a version as `libcni`'s `ParseVersion` does. An empty one means 0.1.0.
fn numbers(text: &str) -> Option<[i64; 3]> {
    if text.is_empty() {
        return Some([0, 1, 0]);
    }
    let mut numbers = [0; 3];
    for (at, part) in text.split('.').enumerate() {
        *numbers.get_mut(at)? = part.parse().ok()?;
    }
    Some(numbers)
}

/// Returns the version that the runtime passes to the plugins of a list: the newest in `cniVersion` and `cniVersions` that `libcni`
/// supports, or `cniVersion` if it supports none of them, or `cniVersions` is missing.
pub(super) fn version(fields: &BTreeMap<String, Value<'_>>) -> String {
    const NEWEST: [i64; 3] = [1, 1, 0];
    let own = fields.get("cniVersion").and_then(|value| value.text()).unwrap_or_default();
    let Some(versions) = fields.get("cniVersions") else { return own };
    let all = versions.elements().filter_map(Value::text).chain(Some(own.clone()).filter(|own| !own.is_empty()));
    let known = all.filter_map(|text| Some((numbers(&text).filter(|numbers| *numbers <= NEWEST)?, text)));
    known.max().map_or(own, |(_, text)| text)
}

/// Returns a flag, which may be a boolean or a string; a missing one is false.
fn flag(fields: &BTreeMap<String, Value<'_>>, key: &'static str) -> Result<bool, Invalid> {
    let Some(value) = fields.get(key) else { return Ok(false) };
    match (value.kind(), value.text().map(|text| text.to_ascii_lowercase()).as_deref()) {
        (Kind::Bool(flag), _) => Ok(flag),
        (_, Some("true")) => Ok(true),
        (_, Some("false")) => Ok(false),
        _ => Err(Invalid::Key { key, expected: "true or false" }),
    }
}
