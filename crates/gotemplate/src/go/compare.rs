//! Comparisons: `eq`, `ne`, `lt`, `le`, `gt`, `ge`.

use crate::error::Reason;
use crate::function::{ANY, Functions};
use crate::value::Value;

pub(super) fn register(functions: Functions) -> Functions {
    functions
        .with("eq", 1, ANY, |_, args| any_equal(args.any(0), &args.all()[1..]).map(Value::Bool))
        .with("ne", 2, 2, |_, args| equal(args.any(0), args.any(1)).map(|equal| Value::Bool(!equal)))
        .with("lt", 2, 2, |_, args| less(args.any(0), args.any(1)).map(Value::Bool))
        .with("le", 2, 2, |_, args| less_or_equal(args.any(0), args.any(1)).map(Value::Bool))
        .with("gt", 2, 2, |_, args| less_or_equal(args.any(0), args.any(1)).map(|less| Value::Bool(!less)))
        .with("ge", 2, 2, |_, args| less(args.any(0), args.any(1)).map(|less| Value::Bool(!less)))
}

fn any_equal(left: &Value<'_>, others: &[Value<'_>]) -> Result<bool, Reason> {
    if others.is_empty() {
        return Err(Reason::Refused("missing argument for comparison".to_owned()));
    }
    for other in others {
        if equal(left, other)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Compares two values of the same basic kind, or any value with nil; other pairs are errors.
#[expect(clippy::float_cmp, reason = "Go compares floats exactly")]
fn equal(left: &Value<'_>, right: &Value<'_>) -> Result<bool, Reason> {
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => Ok(left == right),
        (Value::Float(left), Value::Float(right)) => Ok(left == right),
        (Value::Text(left), Value::Text(right)) => Ok(left == right),
        (
            Value::Int(left) | Value::Long(left) | Value::Enum { number: left, .. },
            Value::Int(right) | Value::Long(right) | Value::Enum { number: right, .. },
        ) => Ok(left == right),
        (Value::Missing | Value::Nil, right) => Ok(right.is_nil()),
        (left, Value::Missing | Value::Nil) => Ok(left.is_nil()),
        (Value::List(_), Value::List(_)) | (Value::Map(_), Value::Map(_)) => {
            Err(Reason::Refused(format!("non-comparable type {}", left.type_name())))
        }
        (left, right) => Err(incompatible(left, right)),
    }
}

fn incompatible(left: &Value<'_>, right: &Value<'_>) -> Reason {
    Reason::Refused(format!("incompatible types for comparison: {} and {}", left.type_name(), right.type_name()))
}

fn less(left: &Value<'_>, right: &Value<'_>) -> Result<bool, Reason> {
    let ordered = |value: &Value<'_>| {
        matches!(value, Value::Int(_) | Value::Long(_) | Value::Float(_) | Value::Text(_) | Value::Enum { .. })
    };
    match (left, right) {
        (
            Value::Int(left) | Value::Long(left) | Value::Enum { number: left, .. },
            Value::Int(right) | Value::Long(right) | Value::Enum { number: right, .. },
        ) => Ok(left < right),
        (Value::Float(left), Value::Float(right)) => Ok(left < right),
        (Value::Text(left), Value::Text(right)) => Ok(left < right),
        (left, right) if ordered(left) && ordered(right) => Err(incompatible(left, right)),
        _ => Err(Reason::Refused("invalid type for comparison".to_owned())),
    }
}

/// Evaluates `le` as `lt` or `eq`, as Go does: for NaN both are false.
fn less_or_equal(left: &Value<'_>, right: &Value<'_>) -> Result<bool, Reason> {
    match less(left, right)? {
        true => Ok(true),
        false => equal(left, right),
    }
}
