//! sprig's functions on maps.

use std::collections::BTreeMap;

use super::lists::element;
use super::strings::text;
use crate::budget::Budget;
use crate::error::Reason;
use crate::function::{ANY, Args, Functions};
use crate::shape::Kind;
use crate::value::{Map, Text, Value};

type Result<'a> = std::result::Result<Value<'a>, Reason>;

pub(super) fn register(functions: Functions) -> Functions {
    functions
        .with("dict", 0, ANY, dict)
        .with("get", 2, 2, |_, args| Ok(map(args.any(0))?.get(args.str(1)?).unwrap_or(Value::from(""))))
        .with("hasKey", 2, 2, |_, args| Ok(Value::Bool(map(args.any(0))?.get(args.str(1)?).is_some())))
        .with("keys", 0, ANY, |_, args| columns(args, |key, _| Value::Text(key)))
        .with("values", 1, 1, |_, args| columns(args, |_, value| element(&value)))
        .with("pick", 1, ANY, |_, args| chosen(args, true))
        .with("omit", 1, ANY, |_, args| chosen(args, false))
        .with("dig", 3, ANY, |_, args| dig(args))
        .with("pluck", 1, ANY, |_, args| {
            let key = args.str(0)?;
            let found = args.all()[1..].iter().map(|from| map(from).map(|from| from.get(key)));
            Value::list(found.filter_map(std::result::Result::transpose).collect::<std::result::Result<_, _>>()?)
        })
        .with("set", 3, 3, |budget, args| {
            map(args.any(0))?.set(args.text(1)?.clone(), element(args.any(2)), budget)?;
            Ok(args.any(0).clone())
        })
        .with("unset", 2, 2, |_, args| {
            map(args.any(0))?.unset(args.str(1)?)?;
            Ok(args.any(0).clone())
        })
        .with("merge", 1, ANY, |budget, args| merged(budget, args, false))
        .with("mergeOverwrite", 1, ANY, |budget, args| merged(budget, args, true))
        .alias("mustMerge", "merge")
        .alias("mustMergeOverwrite", "mergeOverwrite")
}

/// Merges the other maps into the first one; with `overwrite`, their entries replace the entries of the first map.
fn merged<'a>(budget: &mut Budget, args: Args<'_, 'a>, overwrite: bool) -> Result<'a> {
    let into = changeable(map(args.any(0))?)?;
    for from in &args.all()[1..] {
        merge(&into, map(from)?, overwrite, budget)?;
    }
    Ok(Value::Map(into))
}

/// Returns the map if a template can change it, otherwise a copy.
fn changeable<'a>(map: &Map<'a>) -> std::result::Result<Map<'a>, Reason> {
    if map.is_made() { Ok(map.clone()) } else { map.copied() }
}

fn merge<'a>(into: &Map<'a>, from: &Map<'a>, overwrite: bool, budget: &mut Budget) -> std::result::Result<(), Reason> {
    for (key, value) in from.sorted() {
        budget.step(1)?;
        let present = into.get(key.as_str());
        let absent = !present.as_ref().is_some_and(Value::is_true);
        match (&value, present) {
            (Value::Missing | Value::Nil, _) if !overwrite => {}
            (Value::Map(value), Some(Value::Map(present))) => {
                let within = changeable(&present)?;
                merge(&within, value, overwrite, budget)?;
                into.set(key, Value::Map(within), budget)?;
            }
            _ if overwrite || absent => into.set(key, value, budget)?,
            _ => {}
        }
    }
    Ok(())
}

fn map<'s, 'a>(value: &'s Value<'a>) -> std::result::Result<&'s Map<'a>, Reason> {
    match value {
        Value::Map(map) => Ok(map),
        other => Err(other.type_error("map")),
    }
}

/// Builds a map of alternating keys and values; a last key without a value gets an empty string.
fn dict<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<'a> {
    let mut entries = BTreeMap::new();
    for pair in args.all().chunks(2) {
        entries.insert(text(budget, &pair[0])?, pair.get(1).map_or(Value::from(""), element));
    }
    Ok(Value::Map(Map::made(entries, Kind::Any)?))
}

fn columns<'a>(args: Args<'_, 'a>, column: impl Fn(Text<'a>, Value<'a>) -> Value<'a>) -> Result<'a> {
    let mut items = Vec::new();
    for value in args.all() {
        items.extend(map(value)?.sorted().into_iter().map(|(key, value)| column(key, value)));
    }
    Value::list(items)
}

/// Returns the entries of a map whose keys are among the arguments or, if `among` is false, all other entries.
fn chosen<'a>(args: Args<'_, 'a>, among: bool) -> Result<'a> {
    let map = map(args.any(0))?;
    let keys = (1..args.len()).map(|index| args.str(index)).collect::<std::result::Result<Vec<_>, _>>()?;
    let entries = map.sorted().into_iter().filter(|(key, _)| keys.contains(&key.as_str()) == among);
    Ok(Value::Map(Map::made(entries.collect(), map.of())?))
}

/// Returns the value at a path of keys in the last argument, or the default, which is the argument before it.
fn dig<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let last = args.len() - 1;
    let mut found = args.any(last).clone();
    for index in 0..last - 1 {
        match map(&found)?.get(args.str(index)?) {
            Some(value) => found = value,
            None => return Ok(args.any(last - 1).clone()),
        }
    }
    Ok(found)
}
