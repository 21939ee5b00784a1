//! The functions of injection templates: Go's, sprig's and Istio's.
//!
//! `settings` compiles templates with them. A function of Istio replaces sprig's function with the same name, such as
//! `indent`.

mod networks;
mod ports;
mod proxy_config;
mod resources;
mod telemetry;

pub(super) use proxy_config::DEFAULTS as PROXY_DEFAULTS;
pub(super) use resources::ANNOTATIONS as RESOURCE_ANNOTATIONS;

use std::collections::BTreeMap;

use gotemplate::{ANY, Args, Budget, Functions, Kind, Map, Reason, Text, Value, sprint, write_json, write_yaml};

use crate::gojson;

type Result<'a> = std::result::Result<Value<'a>, Reason>;

/// Returns all functions. `environment`: the injector's environment, for `env`.
pub fn all(environment: BTreeMap<String, String>) -> Functions {
    let functions = with_istio(Functions::go().with_sprig());
    telemetry::register(functions).with("env", 2, 2, move |_, args| {
        match (environment.get(args.str(0)?), args.text(1)?) {
            (Some(value), _) => Ok(Value::made(value.as_str())),
            (None, default) => Ok(Value::Text(default.clone())),
        }
    })
}

/// Adds Istio's functions that depend only on their arguments.
fn with_istio(functions: Functions) -> Functions {
    let functions = resources::register(proxy_config::register(networks::register(ports::register(functions))));
    functions
        .with("annotation", 3, 3, annotation)
        .with("isset", 2, 2, |_, args| {
            Ok(Value::Bool(
                map(args.any(0))?.is_some_and(|map| args.any(1).as_str().is_some_and(|key| map.get(key).is_some())),
            ))
        })
        .with("valueOrDefault", 2, 2, |_, args| Ok(value_or_default(args)))
        .with("toYaml", 1, 1, |budget, args| Ok(Value::from(write_yaml(args.any(0), budget)?)))
        .with("indent", 2, 2, indent)
        .with("toJSON", 1, 1, to_json)
        .with("toJson", 1, 1, to_json)
        .with("structToJSON", 1, 1, to_json)
        .with("fromJSON", 1, 1, from_json)
        .with("directory", 1, 1, |_, args| Ok(directory(args.text(0)?)))
        .with("contains", 2, 2, |_, args| Ok(Value::Bool(args.str(1)?.contains(args.str(0)?))))
        .with("toLower", 1, 1, |_, args| Ok(Value::from(args.str(0)?.to_lowercase())))
        .with("formatDuration", 1, 1, |_, args| Ok(Value::from(duration(args.str(0)?))))
        .with("kubevirtInterfaces", 1, 1, |_, args| Ok(Value::Text(args.text(0)?.clone())))
        .with("excludeInterfaces", 1, 1, |_, args| Ok(Value::Text(args.text(0)?.clone())))
        .with("omit", 1, ANY, |_, args| omit(args))
        .with("strdict", 0, ANY, strdict)
        .with("mergeMaps", 0, ANY, |_, args| Ok(Value::Map(merged(args)?)))
        .with("toJsonMap", 0, ANY, |budget, args| Ok(Value::from(write_json(&Value::Map(merged(args)?), budget)?)))
        .with("omitNil", 1, 1, |budget, args| without_nil(budget, args.any(0)))
}

fn map<'s, 'a>(value: &'s Value<'a>) -> std::result::Result<Option<&'s Map<'a>>, Reason> {
    match value {
        Value::Map(map) => Ok(Some(map)),
        Value::Missing | Value::Nil => Ok(None),
        other => Err(other.type_error("map")),
    }
}

/// Returns an annotation in the metadata or, if it is absent, the default as a string.
fn annotation<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<'a> {
    let annotations = args.any(0).field("Annotations")?;
    let present = map(&annotations)?.map(|annotations| Ok::<_, Reason>(annotations.get(args.str(1)?))).transpose()?;
    match (present.flatten(), args.any(2)) {
        (Some(value), _) => Ok(value),
        (None, default @ Value::Text(_)) => Ok(default.clone()),
        (None, default) => Ok(Value::from(sprint(default, budget)?)),
    }
}

/// Returns the first argument or, if it is nil or an empty string, the default. Zero and false are returned as they are.
fn value_or_default<'a>(args: Args<'_, 'a>) -> Value<'a> {
    match args.any(0) {
        Value::Text(text) if text.as_str().is_empty() => args.any(1).clone(),
        value if value.is_nil() => args.any(1).clone(),
        value => value.clone(),
    }
}

/// Indents each line except the first.
fn indent<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<'a> {
    let (width, text) = (args.int(0)?, args.text(1)?);
    let width = usize::try_from(width).unwrap_or(0);
    let breaks = text.as_str().bytes().filter(|byte| *byte == b'\n').count();
    if breaks == 0 || width == 0 {
        return Ok(Value::Text(text.clone()));
    }
    budget.bytes(breaks.saturating_mul(width))?;
    Ok(Value::from(text.as_str().replace('\n', &format!("\n{:width$}", ""))))
}

fn to_json<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<'a> {
    match args.any(0) {
        value if value.is_nil() => Ok(Value::from("{}")),
        value => Ok(Value::from(write_json(value, budget)?)),
    }
}

/// Parses JSON; the result for invalid JSON is the string `{}`.
fn from_json<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<'a> {
    match gojson::decode::<serde_json::Value>(args.str(0)?, budget)? {
        Ok(parsed) => Value::copied(&parsed, budget),
        Err(_) => Ok(Value::from("{}")),
    }
}

fn directory<'a>(path: &Text<'a>) -> Value<'a> {
    let end = path.as_str().rfind('/').map_or(0, |slash| slash + 1);
    match path {
        Text::Borrowed(path) => Value::from(&path[..end]),
        Text::Shared(path) => Value::made(&path[..end]),
    }
}

/// Converts protobuf's `90.5s` to Go's format of a duration, `1m30.5s`.
fn duration(text: &str) -> String {
    let Some(seconds) = text.strip_suffix('s').and_then(|digits| digits.parse::<f64>().ok()) else {
        return text.to_owned();
    };
    #[expect(clippy::cast_possible_truncation, reason = "protobuf's durations are below 2^39 seconds")]
    let whole = seconds.trunc() as i64;
    let (hours, minutes, rest) = (whole / 3600, whole / 60 % 60, seconds - (whole / 60 * 60) as f64);
    match (hours, minutes) {
        _ if seconds.abs() < 1.0 && seconds != 0.0 => format!("{}ms", (seconds * 1e6).round() / 1e3),
        (0, 0) => format!("{rest}s"),
        (0, minutes) => format!("{minutes}m{rest}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{rest}s"),
    }
}

fn omit<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let Some(map) = map(args.any(0))? else { return Ok(args.any(0).clone()) };
    let mut entries: BTreeMap<_, _> = map.sorted().into_iter().collect();
    for index in 1..args.len() {
        entries.remove(args.str(index)?);
    }
    Ok(Value::Map(Map::made(entries, map.of())?))
}

/// Makes a map of strings from alternating keys and values.
fn strdict<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<'a> {
    let mut entries = BTreeMap::new();
    for pair in args.all().chunks(2) {
        let mut text = |value: &Value<'a>| match value {
            Value::Text(text) => Ok(text.clone()),
            other => sprint(other, budget).map(|text| Text::Shared(text.into())),
        };
        let key = text(&pair[0])?;
        let value = pair.get(1).map_or(Ok(Text::Borrowed("")), text)?;
        entries.insert(key, Value::Text(value));
    }
    Ok(Value::Map(Map::made(entries, Kind::Text)?))
}

/// Merges maps; later ones take precedence.
fn merged<'a>(args: Args<'_, 'a>) -> std::result::Result<Map<'a>, Reason> {
    let mut entries = BTreeMap::new();
    for value in args.all() {
        if let Some(map) = map(value)? {
            entries.extend(map.sorted());
        }
    }
    Map::made(entries, Kind::Text)
}

/// Removes nulls at any depth. A list or map that contains only nulls becomes null.
fn without_nil<'a>(budget: &mut Budget, value: &Value<'a>) -> Result<'a> {
    budget.step(1)?;
    match value {
        Value::List(items) => {
            let kept = items
                .iter()
                .map(|item| without_nil(budget, &item))
                .filter(|item| !matches!(item, Ok(Value::Missing | Value::Nil)));
            let kept = kept.collect::<std::result::Result<Vec<_>, _>>()?;
            match kept.is_empty() && !items.is_empty() {
                true => Ok(Value::Nil),
                false => Value::list(kept),
            }
        }
        Value::Map(map) => {
            let mut kept = BTreeMap::new();
            for (key, item) in map.sorted() {
                match without_nil(budget, &item)? {
                    Value::Missing | Value::Nil => {}
                    item => drop(kept.insert(key, item)),
                }
            }
            match kept.is_empty() && !map.is_empty() {
                true => Ok(Value::Nil),
                false => Ok(Value::Map(Map::made(kept, map.of())?)),
            }
        }
        other => Ok(other.clone()),
    }
}

#[cfg(test)]
mod tests;
