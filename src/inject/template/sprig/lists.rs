//! Lists.

use super::strings::text;
use crate::inject::template::error::Reason;
use crate::inject::template::function::{ANY, Args, Budget, Functions, wrong};
use crate::inject::template::go::int;
use crate::inject::template::value::{List, Value};

type Result<'a> = std::result::Result<Value<'a>, Reason>;

/// How many numbers `until` counts at most.
const MAX_COUNT: usize = 100_000;

pub(super) fn register(functions: Functions) -> Functions {
    let functions = ["list", "tuple"].iter().fold(functions, |functions, name| {
        functions.with(name, 0, ANY, |_, args| Value::list(args.all().iter().map(element).collect()))
    });
    let functions = ["append", "push"].iter().fold(functions, |functions, name| {
        functions
            .with(name, 2, 2, |_, args| Value::list(list(args.any(0))?.iter().chain([element(args.any(1))]).collect()))
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
    functions
        .with("join", 2, 2, join)
        .with("splitList", 2, 2, |_, args| Value::list(args.str(1)?.split(args.str(0)?).map(Value::made).collect()))
        .with("sortAlpha", 1, 1, sorted)
        .with("toStrings", 1, 1, |budget, args| {
            Value::list(texts(budget, args.any(0))?.into_iter().map(Value::from).collect())
        })
        .with("until", 1, 1, |_, args| until(args))
}

/// In a list nothing is null.
pub(super) fn element<'a>(value: &Value<'a>) -> Value<'a> {
    match value {
        Value::Missing => Value::Nil,
        value => value.clone(),
    }
}

fn list<'a>(value: &Value<'a>) -> std::result::Result<List<'a>, Reason> {
    match value {
        Value::List(list) => Ok(list.clone()),
        other => Err(wrong("list", other)),
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

/// Whether two values have the same type and look the same; that is what they are where neither can be changed.
fn same(budget: &mut Budget, left: &Value<'_>, right: &Value<'_>) -> std::result::Result<bool, Reason> {
    let kind = std::mem::discriminant(left) == std::mem::discriminant(right);
    Ok(kind
        && crate::inject::template::write_json(left, budget)? == crate::inject::template::write_json(right, budget)?)
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

/// The elements as text, without nulls; what is no list is one of one element.
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

fn until<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let count = usize::try_from(args.int(0)?).unwrap_or(0);
    if count > MAX_COUNT {
        return Err(Reason::Refused(format!("more than {MAX_COUNT} numbers")));
    }
    Value::list((0..count).map(int).collect())
}
