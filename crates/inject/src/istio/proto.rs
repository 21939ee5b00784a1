//! Decoding of mesh and proxy configuration by their protobuf definition, to protobuf's JSON.
//!
//! `mesh` decodes users' YAML, whose field names are those of JSON or of the definition, and whose durations are in
//! Go's or protobuf's format. The result has JSON's names, in the definition's order, and durations in seconds.
//! `tests/support/gomesh` generates the table of the definition from Istio's published module.

mod unknown;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::Duration;

use gocompat::duration;
use serde_json::{Map, Number, Value};

pub(super) use unknown::unknown;

const TABLE: &str = include_str!("proto/mesh.txt");
/// Fields that templates of former releases read and the published definition lacks.
const FORMER: &str = include_str!("proto/former.txt");
/// The maximum depth of nested messages; the definition has six levels.
const DEPTH: usize = 32;

static DEFINITION: LazyLock<Definition> = LazyLock::new(Definition::parse);

/// The message of a proxy configuration.
pub(super) const PROXY_CONFIG: &str = "istio.mesh.v1alpha1.ProxyConfig";
/// The message of the mesh configuration.
pub(super) const MESH_CONFIG: &str = "istio.mesh.v1alpha1.MeshConfig";

/// A value that does not have its field's type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} is {found}, and must be {expected}")]
pub struct Mistyped {
    /// The field, such as `privateKeyProvider.cryptomb.pollDelay`.
    path: String,
    found: String,
    expected: String,
}

/// Decodes the fields of a message. Unknown fields stay unchanged, after the known ones, since templates of other
/// releases may read them. An unknown enum name stays unchanged in the mesh configuration, which Istio accepts too; in
/// a proxy configuration, which a pod's author writes, it is an error.
///
/// # Errors
/// A value does not have its field's type.
pub(super) fn decode(message: &str, fields: Map<String, Value>) -> Result<Map<String, Value>, Mistyped> {
    let mut unknown = Map::new();
    let mut decoded = Decoder { path: String::new(), depth: 0, keeps_unknown_names: message == MESH_CONFIG }.message(
        message,
        fields,
        Some(&mut unknown),
    )?;
    decoded.extend(unknown);
    Ok(decoded)
}

struct Definition {
    messages: HashMap<&'static str, Vec<Field>>,
    enums: HashMap<&'static str, Vec<(&'static str, i64)>>,
}

struct Field {
    name: &'static str,
    cardinality: Cardinality,
    kind: &'static str,
    /// Whether a field that is set to zero differs from an absent field.
    presence: bool,
}

#[derive(Clone, Copy)]
enum Cardinality {
    One,
    List,
    Map,
}

impl Definition {
    fn parse() -> Self {
        let mut definition = Self { messages: HashMap::new(), enums: HashMap::new() };
        let (mut is_enum, mut current) = (false, "");
        for line in TABLE.lines().chain(FORMER.lines()) {
            match line.strip_prefix("  ") {
                Some(row) if is_enum => definition.enums.entry(current).or_default().extend(constant(row)),
                Some(row) => definition.messages.entry(current).or_default().extend(field(row)),
                None => {
                    let (what, name) = line.split_once(' ').unwrap_or_default();
                    (is_enum, current) = (what == "enum", name);
                    if !is_enum {
                        definition.messages.entry(name).or_default();
                    }
                }
            }
        }
        definition
    }
}

fn constant(row: &'static str) -> Option<(&'static str, i64)> {
    let (name, number) = row.split_once(' ')?;
    Some((name, number.parse().ok()?))
}

fn field(row: &'static str) -> Option<Field> {
    let (name, kind) = row.split_once(' ')?;
    let (cardinality, kind) = match kind.split_once(' ') {
        Some(("list", kind)) => (Cardinality::List, kind),
        Some((_, kind)) => (Cardinality::Map, kind),
        None => (Cardinality::One, kind),
    };
    Some(Field { name, cardinality, kind: kind.trim_end_matches('?'), presence: kind.ends_with('?') })
}

struct Decoder {
    path: String,
    depth: usize,
    /// Whether an unknown name of an enum stays unchanged.
    keeps_unknown_names: bool,
}

impl Decoder {
    /// Decodes the fields of a message, in the definition's order. `unknown` receives unknown fields; without it they
    /// are dropped, and so are zeroes of fields without presence.
    fn message(
        &mut self,
        message: &str,
        fields: Map<String, Value>,
        unknown: Option<&mut Map<String, Value>>,
    ) -> Result<Map<String, Value>, Mistyped> {
        let Some(known) = DEFINITION.messages.get(message) else { return Ok(fields) };
        let outermost = unknown.is_some();
        let mut spelled: Map<String, Value> = Map::with_capacity(fields.len());
        spelled.extend(fields.into_iter().map(|(name, value)| (camel_cased(&name), value)));
        let mut decoded = Map::new();
        for field in known {
            let Some(value) = spelled.shift_remove(field.name).filter(|value| !value.is_null()) else { continue };
            let value = self.within(field.name, |decoder| decoder.field(field, value))?;
            if outermost || field.presence || !is_zero(field, &value) {
                decoded.insert(field.name.to_owned(), value);
            }
        }
        if let Some(unknown) = unknown {
            *unknown = spelled;
        }
        Ok(decoded)
    }

    fn field(&mut self, field: &Field, value: Value) -> Result<Value, Mistyped> {
        match (field.cardinality, value) {
            (Cardinality::One, value) => self.value(field.kind, value),
            (Cardinality::List, Value::Array(items)) => {
                let items = items.into_iter().enumerate();
                let items = items.map(|(at, item)| self.within(&at.to_string(), |d| d.value(field.kind, item)));
                items.collect::<Result<Vec<_>, _>>().map(Value::Array)
            }
            (Cardinality::Map, Value::Object(members)) => {
                let decode = |(key, value): (String, Value)| {
                    let value = self.within(&key, |decoder| decoder.value(field.kind, value))?;
                    Ok((key, value))
                };
                members.into_iter().map(decode).collect::<Result<Map<_, _>, _>>().map(Value::Object)
            }
            (Cardinality::List, other) => Err(self.wrong(&other, "a list")),
            (Cardinality::Map, other) => Err(self.wrong(&other, "a map")),
        }
    }

    fn value(&mut self, kind: &str, value: Value) -> Result<Value, Mistyped> {
        match (kind, value) {
            ("any", value) => Ok(value),
            ("string" | "bytes", value @ Value::String(_)) | ("bool", value @ Value::Bool(_)) => Ok(value),
            ("string" | "bytes", other) => Err(self.wrong(&other, "text")),
            ("bool", other) => Err(self.wrong(&other, "true or false")),
            ("double" | "float", value) => self.real(&value),
            ("int32", value) => self.integer(&value, i32::MIN.into(), i32::MAX.into()).map(Value::from),
            ("uint32", value) => self.integer(&value, 0, u32::MAX.into()).map(Value::from),
            ("int64", value) => self.integer(&value, i64::MIN, i64::MAX).map(|number| number.to_string().into()),
            ("uint64", value) => self.integer(&value, 0, i64::MAX).map(|number| number.to_string().into()),
            ("duration", value) => self.duration(&value),
            (kind, value) => match DEFINITION.enums.get(kind) {
                Some(names) => self.constant(names, &value),
                None => self.nested(kind, value),
            },
        }
    }

    fn nested(&mut self, kind: &str, value: Value) -> Result<Value, Mistyped> {
        let Value::Object(fields) = value else { return Err(self.wrong(&value, "a map")) };
        if self.depth == DEPTH {
            return Err(self.wrong(&Value::Object(fields), "less deeply nested"));
        }
        self.depth += 1;
        let decoded = self.message(kind, fields, None);
        self.depth -= 1;
        decoded.map(Value::Object)
    }

    /// Decodes an integer, which protobuf also reads from a string.
    fn integer(&self, value: &Value, least: i64, most: i64) -> Result<i64, Mistyped> {
        #[expect(clippy::cast_possible_truncation, reason = "it is an integer below 2^53")]
        let whole = |number: f64| (number.fract() == 0.0 && number.abs() < 1e15).then_some(number as i64);
        let number = match value {
            Value::Number(number) => number.as_i64().or_else(|| number.as_f64().and_then(whole)),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        let number = number.filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| self.wrong(value, &format!("a whole number from {least} to {most}")))
    }

    fn real(&self, value: &Value) -> Result<Value, Mistyped> {
        let number = match value {
            Value::Number(number) => Some(number.clone()),
            Value::String(text) => text.parse().ok().and_then(Number::from_f64),
            _ => None,
        };
        number.map(Value::Number).ok_or_else(|| self.wrong(value, "a number"))
    }

    fn duration(&self, value: &Value) -> Result<Value, Mistyped> {
        let parsed = value.as_str().and_then(|text| duration::parse(text).ok());
        parsed
            .map(|duration| seconds(duration).into())
            .ok_or_else(|| self.wrong(value, "a duration such as 10s or 1m30s"))
    }

    fn constant(&self, names: &[(&'static str, i64)], value: &Value) -> Result<Value, Mistyped> {
        let by_number = |number: i64| names.iter().find(|(_, value)| *value == number);
        let known = match value {
            Value::String(text) => match names.iter().find(|(name, _)| name == text) {
                None if self.keeps_unknown_names => return Ok(value.clone()),
                known => known,
            },
            Value::Number(number) => number.as_i64().and_then(by_number),
            _ => None,
        };
        let all = || names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        known.map(|(name, _)| Value::from(*name)).ok_or_else(|| self.wrong(value, &format!("one of {}", all())))
    }

    fn within<T>(&mut self, step: &str, decode: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.path.len();
        let dot = if before == 0 { "" } else { "." };
        self.path.extend([dot, step]);
        let decoded = decode(self);
        self.path.truncate(before);
        decoded
    }

    fn wrong(&self, value: &Value, expected: &str) -> Mistyped {
        /// The maximum length of a value in a message, in characters.
        const SHOWN: usize = 60;
        let found = match value {
            Value::Object(_) => "a map".to_owned(),
            Value::Array(_) => "a list".to_owned(),
            scalar => scalar.to_string().chars().take(SHOWN).collect(),
        };
        Mistyped { path: self.path.chars().take(SHOWN * 2).collect(), found, expected: expected.to_owned() }
    }
}

/// Whether a value is the zero value of its field.
fn is_zero(field: &Field, value: &Value) -> bool {
    match value {
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => matches!(field.cardinality, Cardinality::Map) && members.is_empty(),
        Value::String(text) => match DEFINITION.enums.get(field.kind) {
            Some(names) => names.first().is_some_and(|(name, _)| name == text),
            None if field.kind == "duration" => false,
            None => text.is_empty() || (field.kind.ends_with("int64") && text == "0"),
        },
        Value::Null => true,
    }
}

/// Formats a duration as protobuf does: seconds with 0, 3, 6 or 9 decimals.
fn seconds(duration: Duration) -> String {
    let (mut text, nanos) = (duration.as_secs().to_string(), duration.subsec_nanos());
    let _ = match nanos {
        0 => Ok(()),
        nanos if nanos % 1_000_000 == 0 => write!(text, ".{:03}", nanos / 1_000_000),
        nanos if nanos % 1_000 == 0 => write!(text, ".{:06}", nanos / 1_000),
        nanos => write!(text, ".{nanos:09}"),
    };
    text.push('s');
    text
}

/// Converts a field's name in the definition, with underscores, to its name in protobuf's JSON.
fn camel_cased(name: &str) -> String {
    let mut parts = name.split('_');
    let mut camel = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut letters = part.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

#[cfg(test)]
mod tests;
