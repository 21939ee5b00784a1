//! sprig's functions on lists.

use std::collections::BTreeMap;

use super::strings::text;
use crate::budget::Budget;
use crate::error::Reason;
use crate::function::{ANY, Args, Functions};
use crate::shape::Kind;
use crate::value::{List, Map, Text, Value};

type Result<'a> = std::result::Result<Value<'a>, Reason>;

pub(super) fn register(functions: Functions) -> Functions {
    let functions = ["list", "tuple"].iter().fold(functions, |functions, name| {
        functions.with(name, 0, ANY, |_, args| Value::list(args.all().iter().map(element).collect()))
    });
    let functions = ["append", "push"].iter().fold(functions, |functions, name| {
        functions.with_own_charge(name, 2, 2, |budget, args| {
            list(args.any(0))?.appended(element(args.any(1)), budget).map(Value::List)
        })
    });
    let functions = functions
        .with("prepend", 2, 2, |_, args| {
            Value::list([element(args.any(1))].into_iter().chain(list(args.any(0))?.iter()).collect())
        })
        .with("concat", 0, ANY, |_, args| concat(args))
        .with("first", 1, 1, |_, args| Ok(list(args.any(0))?.get(0).unwrap_or(Value::Nil)))
        .with("last", 1, 1, |_, args| last(args))
        .with("rest", 1, 1, |_, args| Value::list(list(args.any(0))?.iter().skip(1).collect()))
        .with("initial", 1, 1, |_, args| initial(args))
        .with("reverse", 1, 1, |_, args| reverse(args))
        .with("uniq", 1, 1, uniq)
        .with("compact", 1, 1, |_, args| Value::list(list(args.any(0))?.iter().filter(Value::is_true).collect()))
        .with("without", 1, ANY, without)
        .with("has", 2, 2, has);
    const MUST: [(&str, &str); 12] = [
        ("mustAppend", "append"),
        ("mustPush", "push"),
        ("mustPrepend", "prepend"),
        ("mustFirst", "first"),
        ("mustRest", "rest"),
        ("mustLast", "last"),
        ("mustInitial", "initial"),
        ("mustReverse", "reverse"),
        ("mustUniq", "uniq"),
        ("mustWithout", "without"),
        ("mustHas", "has"),
        ("mustCompact", "compact"),
    ];
    let functions = MUST.into_iter().fold(functions, |functions, (name, of)| functions.alias(name, of));
    functions
        .with("join", 2, 2, join)
        .with("splitList", 2, 2, |_, args| {
            Value::list(parts(args.str(0)?, args.str(1)?, usize::MAX).map(Value::made).collect())
        })
        .with("sortAlpha", 1, 1, sorted)
        .with("toStrings", 1, 1, |budget, args| {
            Value::list(texts(budget, args.any(0))?.into_iter().map(Value::from).collect())
        })
        .with("until", 1, 1, |budget, args| {
            let stop = args.int(0)?;
            Value::list(counted(budget, 0, stop, if stop < 0 { -1 } else { 1 })?.into_iter().map(Value::Int).collect())
        })
        .with("untilStep", 3, 3, |budget, args| {
            let numbers = counted(budget, args.int(0)?, args.int(1)?, args.int(2)?)?;
            Value::list(numbers.into_iter().map(Value::Int).collect())
        })
        .with("seq", 0, ANY, sequence)
        .with("split", 2, 2, |budget, args| {
            Ok(Value::Map(places(budget, parts(args.str(0)?, args.str(1)?, usize::MAX))?))
        })
        .with("splitn", 3, 3, |budget, args| {
            let count = usize::try_from(args.int(1)?).unwrap_or(usize::MAX);
            Ok(Value::Map(places(budget, parts(args.str(0)?, args.str(2)?, count))?))
        })
        .with("slice", 1, 3, |_, args| part(args))
        .with("chunk", 2, 2, |_, args| chunks(args))
        .alias("mustSlice", "slice")
        .alias("mustChunk", "chunk")
}

/// Splits text at the separator `between` into at most `most` parts; with an empty separator, into characters.
fn parts<'t>(between: &'t str, text: &'t str, most: usize) -> Box<dyn Iterator<Item = &'t str> + 't> {
    if !between.is_empty() {
        return Box::new(text.splitn(most, between));
    }
    let mut rest = text;
    let mut left = most;
    Box::new(std::iter::from_fn(move || {
        let end = if left <= 1 { rest.len() } else { rest.ceil_char_boundary(1) };
        left = left.checked_sub(1)?;
        let (part, behind) = rest.split_at(end);
        rest = behind;
        (!part.is_empty()).then_some(part)
    }))
}

/// Collects parts into a map with the keys `_0`, `_1` and so on.
fn places<'a, 't>(budget: &mut Budget, parts: impl Iterator<Item = &'t str>) -> std::result::Result<Map<'a>, Reason> {
    let mut entries = BTreeMap::new();
    for (at, part) in parts.enumerate() {
        budget.bytes(part.len() + size_of::<(Text<'_>, Value<'_>)>())?;
        entries.insert(Text::Shared(format!("_{at}").into()), Value::made(part));
    }
    Map::made(entries, Kind::Text)
}

/// Returns the numbers from `start` to before `stop`; none if the step leads away from `stop`.
fn counted(budget: &mut Budget, start: i64, stop: i64, step: i64) -> std::result::Result<Vec<i64>, Reason> {
    let mut numbers = Vec::new();
    let mut number = start;
    while (step > 0 && number < stop) || (step < 0 && number > stop) {
        budget.step(1)?;
        numbers.push(number);
        number = number.saturating_add(step);
    }
    Ok(numbers)
}

/// Implements `seq`, which takes the arguments of the shell command `seq` and separates the numbers by spaces.
fn sequence<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<'a> {
    let number = |index| args.int(index);
    let (start, step, end) = match args.len() {
        1 => (1, None, number(0)?),
        2 => (number(0)?, None, number(1)?),
        3 => (number(0)?, Some(number(1)?), number(2)?),
        _ => return Ok(Value::from("")),
    };
    let direction = if end < start { -1 } else { 1 };
    if end < start && step.is_some_and(|step| step > 0) {
        return Ok(Value::from(""));
    }
    let numbers = counted(budget, start, end.saturating_add(direction), step.unwrap_or(direction))?;
    Ok(Value::from(numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(" ")))
}

/// Returns the elements of a list from the index in the second argument to before the index in the third.
fn part<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let list = list(args.any(0))?;
    if list.is_empty() {
        return Ok(Value::Nil);
    }
    let place = |index: usize, default: usize| match args.any(index) {
        _ if args.len() <= index => Ok(default),
        place => usize::try_from(super::numbers::integer(place))
            .map_err(|_| Reason::Refused("slice bounds out of range".to_owned())),
    };
    let (start, end) = (place(1, 0)?, place(2, list.len())?);
    if start > end || end > list.len() {
        return Err(Reason::Refused("slice bounds out of range".to_owned()));
    }
    Value::list(list.iter().skip(start).take(end - start).collect())
}

fn chunks<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let list = list(args.any(1))?;
    let size = usize::try_from(args.int(0)?).ok().filter(|size| *size > 0);
    let size = size.ok_or_else(|| Reason::Refused("chunks have at least one element".to_owned()))?;
    let items: Vec<_> = list.iter().collect();
    Value::list(items.chunks(size).map(|chunk| Value::list(chunk.to_vec())).collect::<std::result::Result<_, _>>()?)
}

/// Returns a value as an element of a list: a missing value becomes nil.
pub(super) fn element<'a>(value: &Value<'a>) -> Value<'a> {
    match value {
        Value::Missing => Value::Nil,
        value => value.clone(),
    }
}

fn list<'a>(value: &Value<'a>) -> std::result::Result<List<'a>, Reason> {
    match value {
        Value::List(list) => Ok(list.clone()),
        other => Err(other.type_error("list")),
    }
}

fn concat<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let mut items = Vec::new();
    for value in args.all() {
        items.extend(list(value)?.iter());
    }
    Value::list(items)
}

fn last<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let list = list(args.any(0))?;
    Ok(list.len().checked_sub(1).and_then(|last| list.get(last)).unwrap_or(Value::Nil))
}

fn initial<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let list = list(args.any(0))?;
    Value::list(list.iter().take(list.len().saturating_sub(1)).collect())
}

fn reverse<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let mut items: Vec<_> = list(args.any(0))?.iter().collect();
    items.reverse();
    Value::list(items)
}

/// Whether two values have the same type and the same JSON. `deepEqual`, `has`, `uniq` and `without` compare values
/// with this function.
pub(super) fn same<'a>(budget: &mut Budget, left: &Value<'a>, right: &Value<'a>) -> std::result::Result<bool, Reason> {
    let (left, right) = (&element(left), &element(right));
    let kind = std::mem::discriminant(left) == std::mem::discriminant(right);
    Ok(kind && crate::write_json(left, budget)? == crate::write_json(right, budget)?)
}

fn find<'a>(
    budget: &mut Budget,
    items: impl IntoIterator<Item = Value<'a>>,
    value: &Value<'a>,
) -> std::result::Result<bool, Reason> {
    for item in items {
        budget.step(1)?;
        if same(budget, &item, value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn uniq<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<'a> {
    let mut kept: Vec<Value<'a>> = Vec::new();
    for item in list(args.any(0))?.iter() {
        if !find(budget, kept.iter().cloned(), &item)? {
            kept.push(item);
        }
    }
    Value::list(kept)
}

fn without<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<'a> {
    let mut kept = Vec::new();
    for item in list(args.any(0))?.iter() {
        if !find(budget, args.all()[1..].iter().cloned(), &item)? {
            kept.push(item);
        }
    }
    Value::list(kept)
}

fn has<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<'a> {
    match args.any(1) {
        Value::Missing | Value::Nil => Ok(Value::Bool(false)),
        haystack => find(budget, list(haystack)?.iter(), args.any(0)).map(Value::Bool),
    }
}

/// Returns the elements as strings, without nulls; a value that is not a list is treated as a list of one element.
fn texts(budget: &mut Budget, value: &Value<'_>) -> std::result::Result<Vec<String>, Reason> {
    let present = |value: &Value<'_>| !matches!(value, Value::Missing | Value::Nil);
    match value {
        Value::List(items) => {
            items.iter().filter(present).map(|item| text(budget, &item).map(|text| text.as_str().to_owned())).collect()
        }
        value if present(value) => Ok(vec![text(budget, value)?.as_str().to_owned()]),
        _ => Ok(Vec::new()),
    }
}

fn join<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<'a> {
    let texts = texts(budget, args.any(1))?;
    let separator = args.str(0)?;
    budget.bytes(separator.len().saturating_mul(texts.len()))?;
    Ok(Value::from(texts.join(separator)))
}

fn sorted<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<'a> {
    let mut texts = texts(budget, args.any(0))?;
    texts.sort();
    Value::list(texts.into_iter().map(Value::from).collect())
}
