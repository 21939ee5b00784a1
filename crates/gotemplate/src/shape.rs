//! Shapes: the field names and types of Go structs, for JSON that the structs encode to.
//!
//! Callers describe their structs as constants, by which the module `value` reads JSON.

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
    /// Whether the struct has protobuf's getters: `.GetName` returns the field `Name`, or its zero value for a nil
    /// pointer.
    pub getters: bool,
}

/// A field of a struct.
#[derive(Debug)]
pub struct Field {
    /// Name in templates.
    pub name: &'static str,
    /// Key in JSON. If it is empty, the JSON of the struct is the field's value, as for protobuf's wrapper types.
    pub json: &'static str,
    /// Type.
    pub kind: Kind,
}

/// Type of a field, or of an element of a list or map.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Untyped JSON as Go decodes it: all numbers are floats. An absent field is a missing value.
    Any,
    /// Untyped JSON as Go decodes YAML: integers stay integers. An absent field is a missing value.
    Yaml,
    /// A string.
    Text,
    /// An integer.
    Int,
    /// A pointer to an integer. An absent field is null.
    MaybeInt,
    /// A boolean.
    Bool,
    /// A constant of an enumeration with these names and numbers. An absent field is the first constant.
    Enum(&'static [(&'static str, i64)]),
    /// A struct. An absent field is a struct of zero values.
    Struct(&'static Shape),
    /// A pointer to a struct. An absent field is a nil pointer.
    Pointer(&'static Shape),
    /// A list.
    List(&'static Kind),
    /// A map with string keys.
    Map(&'static Kind),
}

impl Kind {
    /// A map from strings to strings.
    pub const TEXTS: Self = Self::Map(&Self::Text);

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
