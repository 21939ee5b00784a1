//! Converts API objects to their canonical form, in which Go writes them, with a table of the API's Go types.
//!
//! When Kubernetes' tools write an object, they add fields and omit others: whether a zero is written depends on the
//! field and its type. `istio-cnictl` reads and writes documents in this form; the webhook's patch contains only
//! injected fields. The table also has the merge keys of strategic merges. `tests/support/kubetypes` generates the
//! table from k8s.io/api. Members of an object that its type lacks stay unchanged.

mod scalar;
mod strict;
mod table;

use std::fmt;

use serde_json::{Map, Value};

pub(super) use table::Merge;
use table::{Field, Omit, TABLE, Type};

/// A struct of the API, such as `core.Container`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Struct(usize);

impl Struct {
    /// Returns the struct with this name: the API group's Go package, a dot and the type.
    pub fn named(name: &str) -> Option<Self> {
        TABLE.index(name).map(Self)
    }

    /// Returns the struct type of a field, or of what the field points to or lists.
    pub(super) fn member(self, key: &str) -> Option<Self> {
        self.field(key)?.of.index().map(Self)
    }

    /// Returns how a strategic merge patch merges a list; `None` if it replaces the list.
    pub(super) fn merge(self, key: &str) -> Option<Merge> {
        self.field(key)?.merge
    }

    /// Whether the struct has a field with this name.
    pub(super) fn has(self, key: &str) -> bool {
        self.field(key).is_some()
    }

    /// Whether a field is a quantity, or a map of quantities.
    pub(super) fn has_quantities(self, key: &str) -> bool {
        self.field(key).is_some_and(|field| field.of.is_of_quantities())
    }

    fn field(self, key: &str) -> Option<&'static Field> {
        TABLE.fields(self.0).iter().find(|field| field.key == key)
    }

    /// Converts a value to the form in which Go writes it: fields in the type's order, zeroes present or omitted by
    /// type, canonical scalars, unknown members last.
    ///
    /// # Errors
    /// A field is not of its type; the API server refuses such an object as well.
    pub fn canonical(self, value: Value) -> Result<Value, Mismatch> {
        structure(self.0, value)
    }

    /// Checks a value as the API server decodes it. Unlike [`canonical`](Self::canonical), which reads documents, the
    /// API server accepts no number or boolean in place of a string.
    ///
    /// # Errors
    /// A field is not of its type.
    pub(super) fn check(self, value: &Value) -> Result<(), Mismatch> {
        strict::structure(self.0, value)
    }
}

/// A field that is not of its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    path: String,
    expected: &'static str,
    got: String,
}

impl Mismatch {
    /// The maximum number of characters that the message quotes from a value or a key.
    const SHOWN: usize = 40;

    fn new(expected: &'static str, got: &Value) -> Self {
        let got = match got {
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "a map".to_owned(),
            scalar => scalar.to_string().chars().take(Self::SHOWN).collect(),
        };
        Self { path: String::new(), expected, got }
    }

    fn within(mut self, step: impl fmt::Display) -> Self {
        self.path.insert_str(0, &step.to_string());
        self
    }

    /// Adds the key of the member that contains the mismatch, truncated if it is long.
    fn within_key(self, key: &str) -> Self {
        self.within(format_args!(".{}", key.chars().take(Self::SHOWN).collect::<String>()))
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.strip_prefix('.').unwrap_or(&self.path);
        let Self { expected, got, .. } = self;
        if path.is_empty() {
            write!(f, "expected {expected}, got {got}")
        } else {
            write!(f, "{path}: expected {expected}, got {got}")
        }
    }
}

impl std::error::Error for Mismatch {}

/// Converts a value to this type. Null is the type's zero, as in Go.
fn canonical(of: &Type, value: Value) -> Result<Value, Mismatch> {
    match of {
        Type::String => scalar::text(value),
        Type::Bool => scalar::truth(&value),
        Type::Int32 => scalar::int32(&value),
        Type::Int64 => scalar::int64(&value),
        Type::Quantity => scalar::quantity(&value),
        Type::IntOrString => scalar::int_or_string(value),
        Type::Time => scalar::time(&value),
        Type::Raw => Ok(value),
        Type::Struct(index) => structure(*index, value),
        Type::Pointer(inner) if !value.is_null() => canonical(inner, value),
        Type::List(inner) if !value.is_null() => list(inner, value),
        Type::Map(inner) if !value.is_null() => map(inner, value),
        Type::Pointer(_) | Type::List(_) | Type::Map(_) => Ok(Value::Null),
    }
}

fn list(of: &Type, value: Value) -> Result<Value, Mismatch> {
    let Value::Array(items) = value else { return Err(Mismatch::new("a list", &value)) };
    let item = |(at, item)| canonical(of, item).map_err(|error| error.within(format_args!("[{at}]")));
    items.into_iter().enumerate().map(item).collect()
}

fn map(of: &Type, value: Value) -> Result<Value, Mismatch> {
    let Value::Object(members) = value else { return Err(Mismatch::new("a map", &value)) };
    let member = |(key, value): (String, Value)| match canonical(of, value) {
        Ok(value) => Ok((key, value)),
        Err(error) => Err(error.within_key(&key)),
    };
    let mut members: Map<String, Value> = members.into_iter().map(member).collect::<Result<_, _>>()?;
    members.sort_keys();
    Ok(Value::Object(members))
}

fn structure(index: usize, value: Value) -> Result<Value, Mismatch> {
    let members = match value {
        Value::Object(members) => members,
        Value::Null => Map::new(),
        other => return Err(Mismatch::new("a map", &other)),
    };
    let fields = TABLE.fields(index);
    let mut given: Vec<Option<Value>> = vec![None; fields.len()];
    let mut unknown = Vec::new();
    for (key, value) in members {
        match fields.iter().position(|field| field.key == key) {
            Some(at) => given[at] = Some(value),
            None => unknown.push((key, value)),
        }
    }
    let mut written = Map::with_capacity(fields.len());
    for (field, value) in fields.iter().zip(given) {
        if value.is_none() && field.omit != Omit::Never {
            continue;
        }
        let value = canonical(&field.of, value.unwrap_or_default())
            .map_err(|error| error.within(format_args!(".{}", field.key)))?;
        if field.omit == Omit::Never || !is_zero(&field.of, &value) {
            written.insert(field.key.to_owned(), value);
        }
    }
    written.extend(unknown);
    Ok(Value::Object(written))
}

/// Whether a value is the zero of its type; only null is the zero of a pointer.
fn is_zero(of: &Type, value: &Value) -> bool {
    match value {
        Value::Null => true,
        _ if matches!(of, Type::Pointer(_)) => false,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}
