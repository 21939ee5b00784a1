//! Structs in the data: JSON with a shape.

use serde_json::Value as Json;

use super::Value;
use crate::error::Reason;
use crate::member::member_of;
use crate::shape::{Field, Shape};

/// A struct in the data, or a pointer to one, which may be nil.
#[derive(Debug, Clone, Copy)]
pub struct Struct<'a> {
    pub(super) shape: &'static Shape,
    pub(super) json: Option<&'a Json>,
    pub(super) pointer: bool,
}

impl<'a> Struct<'a> {
    /// Whether the struct is a nil pointer.
    pub fn is_nil(&self) -> bool {
        self.pointer && self.json.is_none()
    }

    /// Iterates over all fields with their values, in the order of the shape.
    pub fn fields(&self) -> impl Iterator<Item = (&'static Field, Value<'a>)> + '_ {
        self.shape.fields.iter().map(|field| (field, self.read(field)))
    }

    /// Whether the JSON has this field.
    pub fn has(&self, field: &Field) -> bool {
        self.json.is_some_and(|json| field.json.is_empty() || member_of(json, field.json).is_some())
    }

    /// Returns the JSON of the struct; `None` if it is absent.
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
