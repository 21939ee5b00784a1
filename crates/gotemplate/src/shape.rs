//! Shapes: the field names, types and zero values of Go structs, for JSON that the structs encode to.
//!
//! Callers describe their structs as constants.

use serde_json::Value as Json;

use super::error::Reason;
use super::member::member_of;
use super::value::{List, Map, Text, Value};

/// A Go struct: its name and its fields.
///
/// ```
/// use gotemplate::{Field, Kind, Shape, Value};
///
/// static PORT: Shape = Shape {
///     name: "v1.Port",
///     fields: &[
///         Field { name: "Name", json: "name", kind: Kind::Text },
///         Field { name: "Number", json: "containerPort", kind: Kind::Int },
///     ],
///     getters: false,
/// };
/// let json = serde_json::json!({ "containerPort": 80 });
/// let port = Value::shaped(&json, &PORT);
/// assert_eq!(port.field("Name")?.as_str(), Some(""));
/// assert_eq!(port.field("Protocol").unwrap_err().to_string(), "can't evaluate field Protocol in type v1.Port");
/// # Ok::<_, gotemplate::Reason>(())
/// ```
#[derive(Debug)]
pub struct Shape {
    /// Name of the type in errors, such as `v1.Container`.
    pub name: &'static str,
    /// Fields, in the order in which Go prints and encodes them.
    pub fields: &'static [Field],
    /// Whether the struct has protobuf's getters: `GetName` is `Name`, and works on a nil pointer.
    pub getters: bool,
}

/// A field of a struct.
#[derive(Debug)]
pub struct Field {
    /// Name in templates.
    pub name: &'static str,
    /// Key in JSON; empty where the JSON itself is the field, as in protobuf's wrappers.
    pub json: &'static str,
    /// Type.
    pub kind: Kind,
}

/// Type of a field, or of an element of a list or map.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Untyped JSON as Go decodes it: all numbers are floats. Absent, it is missing.
    Any,
    /// Untyped JSON as Go decodes YAML: integers stay integers. Absent, it is missing.
    Yaml,
    /// Text.
    Text,
    /// An integer.
    Int,
    /// A pointer to an integer: absent, it is null.
    MaybeInt,
    /// A boolean.
    Bool,
    /// A constant by its name, with its number. Absent, it is the first one.
    Enum(&'static [(&'static str, i64)]),
    /// A struct. Absent, its fields are zero.
    Struct(&'static Shape),
    /// A pointer to a struct. Absent, it is nil.
    Pointer(&'static Shape),
    /// A list.
    List(&'static Kind),
    /// A map with text keys.
    Map(&'static Kind),
}

impl Kind {
    /// A map from text to text.
    pub const TEXTS: Self = Self::Map(&Self::Text);

    /// JSON as a value of this kind. JSON of another kind yields the zero value; callers check types where they matter.
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
            Json::Number(number) => match number.as_i64().filter(|_| matches!(self, Self::Yaml)) {
                Some(number) => Value::Int(number),
                None => Value::Float(number.as_f64().unwrap_or_default()),
            },
            Json::String(text) => Value::Text(Text::Borrowed(text)),
            Json::Array(items) => Value::List(List::Json(items, self)),
            Json::Object(entries) => Value::Map(Map::json(Some(entries), self)),
        }
    }

    /// The value that `index` finds under an absent key.
    pub(super) fn zero<'a>(self) -> Value<'a> {
        match self {
            Self::Any | Self::Yaml => Value::Nil,
            kind => kind.view(None),
        }
    }

    pub(super) fn go_name(self) -> String {
        match self {
            Self::Any | Self::Yaml => "interface {}".to_owned(),
            Self::Text => "string".to_owned(),
            Self::Int | Self::MaybeInt => "int64".to_owned(),
            Self::Bool => "bool".to_owned(),
            Self::Enum(_) => "int32".to_owned(),
            Self::Struct(shape) => shape.name.to_owned(),
            Self::Pointer(shape) => format!("*{}", shape.name),
            Self::List(of) => format!("[]{}", of.go_name()),
            Self::Map(of) => format!("map[string]{}", of.go_name()),
        }
    }
}

/// An integer, also from a float, as YAML's readers yield, and from a string, as protobuf's JSON has 64 bits.
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

/// A struct of the data, or a pointer to one, which may be nil.
#[derive(Debug, Clone, Copy)]
pub struct Struct<'a> {
    shape: &'static Shape,
    json: Option<&'a Json>,
    pointer: bool,
}

impl<'a> Struct<'a> {
    /// Whether the struct is a nil pointer.
    pub fn is_nil(&self) -> bool {
        self.pointer && self.json.is_none()
    }

    /// All fields with their values, in the order of the shape.
    pub fn fields(&self) -> impl Iterator<Item = (&'static Field, Value<'a>)> + '_ {
        self.shape.fields.iter().map(|field| (field, self.read(field)))
    }

    /// Whether the JSON has this field.
    pub fn has(&self, field: &Field) -> bool {
        self.json.is_some_and(|json| field.json.is_empty() || member_of(json, field.json).is_some())
    }

    /// The JSON of the struct; none where it is absent.
    pub fn json(&self) -> Option<&'a Json> {
        self.json
    }

    pub(super) fn type_name(&self) -> String {
        let pointer = if self.pointer { "*" } else { "" };
        format!("{pointer}{}", self.shape.name)
    }

    pub(super) fn field(&self, name: &str) -> Result<Value<'a>, Reason> {
        let find = |name: &str| self.shape.fields.iter().find(|field| field.name == name);
        if let Some(field) = find(name) {
            return match self.is_nil() {
                true => Err(Reason::NilPointer { field: name.to_owned(), of: self.type_name() }),
                false => Ok(self.read(field)),
            };
        }
        let getter = name.strip_prefix("Get").filter(|_| self.shape.getters).and_then(find);
        getter
            .map(|field| self.read(field))
            .ok_or_else(|| Reason::UnknownField { field: name.to_owned(), of: self.type_name() })
    }

    fn read(&self, field: &Field) -> Value<'a> {
        let json = match field.json {
            "" => self.json,
            key => self.json.and_then(|json| member_of(json, key)),
        };
        field.kind.view(json)
    }
}
