//! Checks a value against its type as the API server decodes JSON: a string is not a number, nor a number a string.

use serde_json::Value;

use super::table::{TABLE, Type};
use super::{Mismatch, scalar};

/// Checks a value. Null is the type's zero, as in Go. Members that the type lacks are not checked, because the API
/// server drops them.
pub(super) fn check(of: &Type, value: &Value) -> Result<(), Mismatch> {
    if value.is_null() {
        return Ok(());
    }
    let expect = |is_valid: bool, expected| if is_valid { Ok(()) } else { Err(Mismatch::new(expected, value)) };
    match of {
        Type::String => expect(value.is_string(), "a text"),
        Type::Bool => expect(value.is_boolean(), "true or false"),
        Type::Int32 => expect(is_int32(value), "an integer of 32 bits"),
        Type::Int64 => expect(value.is_i64(), "an integer of 64 bits"),
        Type::IntOrString => expect(value.is_string() || is_int32(value), "an integer of 32 bits or a text"),
        Type::Quantity => scalar::quantity(value).map(drop),
        Type::Time => scalar::time(value).map(drop),
        Type::Raw => Ok(()),
        Type::Pointer(inner) => check(inner, value),
        Type::Struct(index) => structure(*index, value),
        Type::List(inner) => match value {
            Value::Array(items) => items
                .iter()
                .enumerate()
                .try_for_each(|(at, item)| check(inner, item).map_err(|error| error.within(format_args!("[{at}]")))),
            _ => expect(false, "a list"),
        },
        Type::Map(inner) => match value {
            Value::Object(members) => {
                members.iter().try_for_each(|(key, value)| check(inner, value).map_err(|error| error.within_key(key)))
            }
            _ => expect(false, "a map"),
        },
    }
}

/// Checks a value against the struct with this index in the table.
pub(super) fn structure(index: usize, value: &Value) -> Result<(), Mismatch> {
    let members = match value {
        Value::Object(members) => members,
        Value::Null => return Ok(()),
        other => return Err(Mismatch::new("a map", other)),
    };
    let fields = TABLE.fields(index);
    members.iter().try_for_each(|(key, value)| match fields.iter().find(|field| field.key == key) {
        Some(field) => check(&field.of, value).map_err(|error| error.within_key(key)),
        None => Ok(()),
    })
}

fn is_int32(value: &Value) -> bool {
    value.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
}
