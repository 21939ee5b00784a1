//! Values of templates, borrowed from the data or owned, with Go's rules for missing values, nil, truth and types.
//!
//! A template can change no value except maps that its functions made.

mod list;
mod map;
mod shaped;
mod text;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value as Json;

use super::budget::Budget;
use super::error::Reason;
use super::shape::{Kind, Shape};
pub use list::List;
pub use map::Map;
pub use shaped::Struct;
pub use text::Text;

/// Levels of nested lists and maps that a template may make.
pub(super) const MAX_NESTING: usize = 100;

/// A value of a template. Cheap to clone: no variant copies its contents.
#[derive(Debug, Clone, Default)]
pub enum Value<'a> {
    /// No value, as under an absent key of a map. Its fields have no value either; it is printed as `<no value>`.
    #[default]
    Missing,
    /// A null. Reading a field of it is an error.
    Nil,
    /// A boolean.
    Bool(bool),
    /// An integer: a literal, a length, a typed field. JSON's numbers are [`Value::Float`], as in Go.
    Int(i64),
    /// An integer of Go's type `int64`, the result of sprig's arithmetic.
    Long(i64),
    /// An integer of YAML above the greatest [`Value::Int`].
    Uint(u64),
    /// A number of JSON or YAML without a type.
    Float(f64),
    /// A string.
    Text(Text<'a>),
    /// A list.
    List(List<'a>),
    /// A map with string keys.
    Map(Map<'a>),
    /// JSON with a [`Shape`]. An unknown field is an error; an absent field has the zero value of its [`Kind`].
    Struct(Struct<'a>),
    /// Fields that the caller computed. An unknown field is an error.
    Record(Rc<Record<'a>>),
    /// A constant of an enumeration, printed by its name and compared by its number.
    Enum {
        /// Number of the constant.
        number: i64,
        /// Name of the constant.
        name: &'static str,
    },
}

/// A struct of computed fields, such as the data of a rendering.
#[derive(Debug, Clone)]
pub struct Record<'a> {
    /// Name of the type in errors.
    pub name: &'static str,
    /// Fields by name. A lookup compares the names one by one, so a record should have few fields.
    pub fields: Vec<(&'static str, Value<'a>)>,
}

impl<'a> Record<'a> {
    /// Creates a record with this type name and these fields, as a value.
    pub fn value(name: &'static str, fields: Vec<(&'static str, Value<'a>)>) -> Value<'a> {
        Value::Record(Rc::new(Self { name, fields }))
    }

    /// Returns the field with this name.
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value)
    }
}

impl Kind {
    /// Returns JSON as a value of this kind. JSON of another kind yields the zero value of this kind; callers check
    /// types where they matter.
    pub fn view<'a>(self, json: Option<&'a Json>) -> Value<'a> {
        match self {
            Self::Any | Self::Yaml => json.map_or(Value::Missing, |json| self.untyped(json)),
            Self::Text => Value::Text(Text::Borrowed(json.and_then(Json::as_str).unwrap_or_default())),
            Self::Int => Value::Int(json.and_then(integer).unwrap_or_default()),
            Self::MaybeInt => json.and_then(integer).map_or(Value::Nil, Value::Int),
            Self::Bool => Value::Bool(json.and_then(Json::as_bool).unwrap_or_default()),
            Self::Enum(names) => constant(names, json),
            Self::Struct(shape) => Value::Struct(Struct { shape, json, pointer: false }),
            Self::Pointer(shape) => {
                Value::Struct(Struct { shape, json: json.filter(|json| !json.is_null()), pointer: true })
            }
            Self::List(of) => Value::List(List::Json(json.and_then(Json::as_array).map_or(&[], Vec::as_slice), *of)),
            Self::Map(of) => Value::Map(Map::json(json.and_then(Json::as_object), *of)),
        }
    }

    fn untyped(self, json: &Json) -> Value<'_> {
        match json {
            Json::Null => Value::Nil,
            Json::Bool(truth) => Value::Bool(*truth),
            Json::Number(number) if matches!(self, Self::Yaml) => match (number.as_i64(), number.as_u64()) {
                (Some(number), _) => Value::Int(number),
                (None, Some(number)) => Value::Uint(number),
                (None, None) => Value::Float(number.as_f64().unwrap_or_default()),
            },
            Json::Number(number) => Value::Float(number.as_f64().unwrap_or_default()),
            Json::String(text) => Value::Text(Text::Borrowed(text)),
            Json::Array(items) => Value::List(List::Json(items, self)),
            Json::Object(entries) => Value::Map(Map::json(Some(entries), self)),
        }
    }

    /// Returns the value that `index` finds under an absent key in a map with elements of this kind.
    pub(super) fn zero<'a>(self) -> Value<'a> {
        match self {
            Self::Any | Self::Yaml => Value::Nil,
            kind => kind.view(None),
        }
    }
}

/// Reads an integer: also from a float, because readers of YAML yield floats, and from a string, because protobuf's
/// JSON has 64-bit integers as strings.
fn integer(json: &Json) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "`as` keeps to the range of the integer")]
    let truncated = || json.as_f64().map(|number| number as i64);
    json.as_i64().or_else(truncated).or_else(|| json.as_str()?.parse().ok())
}

fn constant<'a>(names: &'static [(&'static str, i64)], json: Option<&Json>) -> Value<'a> {
    let by_name = json.and_then(Json::as_str).and_then(|text| names.iter().find(|(name, _)| *name == text));
    let by_number = || json.and_then(Json::as_i64).and_then(|number| names.iter().find(|(_, value)| *value == number));
    match by_name.or_else(by_number).or(names.first()) {
        Some((name, number)) => Value::Enum { number: *number, name },
        None => Value::Int(0),
    }
}

impl<'a> Value<'a> {
    /// Returns untyped JSON as Go decodes it into `any`: all numbers are floats.
    pub fn json(json: &'a Json) -> Self {
        Kind::Any.view(Some(json))
    }

    /// Returns untyped JSON as Go decodes YAML into `any`: integers stay integers.
    pub fn yaml(json: &'a Json) -> Self {
        Kind::Yaml.view(Some(json))
    }

    /// Returns JSON with the field names, types and zero values of a shape.
    pub fn shaped(json: &'a Json, shape: &'static Shape) -> Self {
        Kind::Struct(shape).view(Some(json))
    }

    /// Returns a map from strings to strings, which is empty without JSON.
    pub fn texts(json: Option<&'a Json>) -> Self {
        Kind::TEXTS.view(json)
    }

    /// Copies untyped JSON into a value whose maps a template can change.
    ///
    /// # Errors
    /// The budget is spent, or the JSON nests too deep.
    pub fn copied(json: &Json, budget: &mut Budget) -> Result<Self, Reason> {
        budget.step(1)?;
        budget.bytes(size_of::<Self>())?;
        Ok(match json {
            Json::Null => Self::Nil,
            Json::Bool(truth) => Self::Bool(*truth),
            Json::Number(number) => Self::Float(number.as_f64().unwrap_or_default()),
            Json::String(text) => Self::made(text.as_str()),
            Json::Array(items) => {
                Self::list(items.iter().map(|item| Self::copied(item, budget)).collect::<Result<_, _>>()?)?
            }
            Json::Object(entries) => {
                let mut map = BTreeMap::new();
                for (key, value) in entries {
                    map.insert(Text::Shared(key.as_str().into()), Self::copied(value, budget)?);
                }
                Self::Map(Map::made(map, Kind::Any)?)
            }
        })
    }

    /// Returns a string that the value owns.
    pub fn made(text: impl Into<Arc<str>>) -> Self {
        Self::Text(Text::Shared(text.into()))
    }

    /// Creates a list of these elements.
    ///
    /// # Errors
    /// [`Reason::TooDeep`]: the elements nest more than 99 levels deep.
    pub fn list(items: Vec<Value<'a>>) -> Result<Self, Reason> {
        List::made(items).map(Self::List)
    }

    /// Returns the contents of a string; `None` for a value of another type.
    #[inline]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text.as_str()),
            _ => None,
        }
    }

    /// Returns the name of the type in Go, for errors, `%T` and `typeOf`.
    pub fn type_name(&self) -> String {
        match self {
            Self::Missing | Self::Nil => "<nil>".to_owned(),
            Self::Bool(_) => "bool".to_owned(),
            Self::Int(_) => "int".to_owned(),
            Self::Long(_) => "int64".to_owned(),
            Self::Uint(_) => "uint64".to_owned(),
            Self::Float(_) => "float64".to_owned(),
            Self::Text(_) => "string".to_owned(),
            Self::List(List::Json(_, of)) => format!("[]{}", of.go_name()),
            Self::List(List::Made(_)) => "[]interface {}".to_owned(),
            Self::Map(map) => format!("map[string]{}", map.of().go_name()),
            Self::Struct(shaped) => shaped.type_name(),
            Self::Record(record) => record.name.to_owned(),
            Self::Enum { .. } => "int32".to_owned(),
        }
    }

    /// Whether the value is true as a condition in Go's templates: it is not false, zero, nil or an empty string, list
    /// or map.
    pub fn is_true(&self) -> bool {
        match self {
            Self::Missing | Self::Nil => false,
            Self::Bool(truth) => *truth,
            Self::Int(number) | Self::Long(number) | Self::Enum { number, .. } => *number != 0,
            Self::Uint(number) => *number != 0,
            Self::Float(number) => *number != 0.0,
            Self::Text(text) => !text.as_str().is_empty(),
            Self::List(list) => !list.is_empty(),
            Self::Map(map) => !map.is_empty(),
            Self::Struct(shaped) => !shaped.is_nil(),
            Self::Record(_) => true,
        }
    }

    /// Whether the value is missing, a null or a nil pointer.
    pub fn is_nil(&self) -> bool {
        match self {
            Self::Missing | Self::Nil => true,
            Self::Struct(shaped) => shaped.is_nil(),
            _ => false,
        }
    }

    /// Returns the value as a pipeline passes it on: a null becomes a missing value.
    pub(super) fn out_of_pipeline(self) -> Self {
        match self {
            Self::Nil => Self::Missing,
            value => value,
        }
    }

    /// Returns the error of a function that expects another type.
    pub fn type_error(&self, expected: &'static str) -> Reason {
        Reason::Type { expected, got: self.type_name() }
    }

    /// Returns the value of a field, or of an entry of a map.
    ///
    /// # Errors
    /// [`Reason::NilPointer`]: the value is null or a nil pointer. [`Reason::UnknownField`]: its type has no such
    /// field.
    pub fn field(&self, name: &str) -> Result<Value<'a>, Reason> {
        let unknown = || Reason::UnknownField { field: name.to_owned(), of: self.type_name() };
        match self {
            Self::Missing => Ok(Self::Missing),
            Self::Nil => Err(Reason::NilPointer { field: name.to_owned(), of: "interface {}".to_owned() }),
            Self::Map(map) => Ok(map.get(name).unwrap_or_default()),
            Self::Struct(shaped) => shaped.field(name),
            Self::Record(record) => record.get(name).cloned().ok_or_else(unknown),
            Self::Enum { name: constant, .. } if name == "String" => Ok(Self::Text(Text::Borrowed(constant))),
            _ => Err(unknown()),
        }
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Text::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::made(text)
    }
}

impl From<bool> for Value<'_> {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

/// Returns the levels of nesting of a list or map with these elements. More than [`MAX_NESTING`] levels are an error,
/// because functions recurse over values.
pub(super) fn nesting<'v, 'a: 'v>(items: impl Iterator<Item = &'v Value<'a>>) -> Result<usize, Reason> {
    let below = items
        .map(|item| match item {
            Value::List(list) => list.depth(),
            Value::Map(map) => map.depth(),
            _ => 0,
        })
        .max();
    match below.unwrap_or(0) + 1 {
        depth if depth > MAX_NESTING => Err(Reason::TooDeep(MAX_NESTING)),
        depth => Ok(depth),
    }
}
