//! Defaults, kinds and encodings.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::inject::template::error::Reason;
use crate::inject::template::function::{ANY, Args, Functions};
use crate::inject::template::value::{List, Value};
use crate::inject::template::write_json;

type Result<'a> = std::result::Result<Value<'a>, Reason>;

pub(super) fn register(functions: Functions) -> Functions {
    functions
        .with("default", 1, ANY, |_, args| Ok(args.any(usize::from(args.any(1).is_true())).clone()))
        .with("empty", 1, 1, |_, args| Ok(Value::Bool(!args.any(0).is_true())))
        .with("coalesce", 0, ANY, |_, args| {
            Ok(args.all().iter().find(|value| value.is_true()).cloned().unwrap_or(Value::Nil))
        })
        .with("all", 0, ANY, |_, args| Ok(Value::Bool(args.all().iter().all(Value::is_true))))
        .with("any", 0, ANY, |_, args| Ok(Value::Bool(args.all().iter().any(Value::is_true))))
        .with("ternary", 3, 3, |_, args| ternary(args))
        .with("fail", 1, 1, |_, args| Err(Reason::Refused(args.str(0)?.to_owned())))
        .with("kindOf", 1, 1, |_, args| Ok(Value::from(kind(args.any(0)))))
        .with("kindIs", 2, 2, |_, args| Ok(Value::Bool(args.str(0)? == kind(args.any(1)))))
        .with("typeOf", 1, 1, |_, args| Ok(Value::from(args.any(0).type_name())))
        .with("typeIs", 2, 2, |_, args| Ok(Value::Bool(args.str(0)? == args.any(1).type_name())))
        .with("toJson", 1, 1, |budget, args| Ok(Value::from(write_json(args.any(0), budget)?)))
        .with("b64enc", 1, 1, |_, args| Ok(Value::from(BASE64_STANDARD.encode(args.str(0)?))))
        .with("b64dec", 1, 1, |_, args| decoded(args))
}

fn ternary<'a>(args: Args<'_, 'a>) -> Result<'a> {
    match args.any(2) {
        Value::Bool(truth) => Ok(args.any(usize::from(!truth)).clone()),
        other => Err(crate::inject::template::function::wrong("bool", other)),
    }
}

fn decoded<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let bytes = BASE64_STANDARD.decode(args.str(0)?).map_err(|error| Reason::Refused(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| Reason::Refused("what was encoded is no text".to_owned()))?;
    Ok(Value::from(text))
}

fn kind(value: &Value<'_>) -> &'static str {
    match value {
        Value::Missing | Value::Nil => "invalid",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int",
        Value::Float(_) => "float64",
        Value::Text(_) => "string",
        Value::List(List::Json(..) | List::Made(..)) => "slice",
        Value::Map(_) => "map",
        Value::Struct(_) | Value::Record(_) => "struct",
        Value::Enum { .. } => "int32",
    }
}
