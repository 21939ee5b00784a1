//! The built-in functions of Go's text/template.

mod compare;

use super::budget::Budget;
use super::error::Reason;
use super::function::{ANY, Args, FunctionBody, Functions};
use super::print::{self, Sink};
use super::printf;
use super::value::{List, Text, Value};

type Result<'a> = std::result::Result<Value<'a>, Reason>;

impl Functions {
    /// Returns the built-in functions of Go's text/template.
    pub fn go() -> Self {
        let mut functions = Self::default();
        functions.insert("and", 1, ANY, FunctionBody::And);
        functions.insert("or", 1, ANY, FunctionBody::Or);
        register(compare::register(functions))
    }
}

fn register(functions: Functions) -> Functions {
    functions
        .with("not", 1, 1, |_, args| Ok(Value::Bool(!args.any(0).is_true())))
        // `len` and `index` are not charged for the elements of their arguments, because they read none that they do
        // not return.
        .with_own_charge("len", 1, 1, |_, args| length(args))
        .with_own_charge("index", 1, ANY, |_, args| index(args))
        .with("slice", 1, 4, |_, args| slice(args))
        .with("print", 0, ANY, print)
        .with("println", 0, ANY, println)
        .with("printf", 1, ANY, |budget, args| Ok(Value::from(printf::format(budget, args.str(0)?, &args.all()[1..])?)))
        .with("html", 0, ANY, |budget, args| escaped(budget, args, html))
        .with("js", 0, ANY, |budget, args| escaped(budget, args, js))
        .with("urlquery", 0, ANY, |budget, args| escaped(budget, args, url))
        .with("call", 1, ANY, |_, args| Err(refused(&format!("non-function of type {}", args.any(0).type_name()))))
}

pub(super) fn refused(why: &str) -> Reason {
    Reason::Refused(why.to_owned())
}

fn length<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let length = match args.any(0) {
        Value::Text(text) => text.as_str().len(),
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        other => return Err(Reason::Refused(format!("len of type {}", other.type_name()))),
    };
    Ok(int(length))
}

pub(super) fn int<'a>(number: usize) -> Value<'a> {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

fn index<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let mut item = args.any(0).clone();
    if matches!(item, Value::Missing | Value::Nil) {
        return Err(refused("index of untyped nil"));
    }
    for key in &args.all()[1..] {
        item = match &item {
            Value::List(list) => {
                let at = position(key, list.len())?;
                list.get(at).ok_or_else(|| Reason::Refused(format!("index out of range: {at}")))?
            }
            Value::Text(text) => {
                let at = position(key, text.as_str().len())?;
                let byte = text.as_str().as_bytes().get(at);
                Value::Int(i64::from(*byte.ok_or_else(|| Reason::Refused(format!("index out of range: {at}")))?))
            }
            Value::Map(map) => match key {
                Value::Text(key) => map.get(key.as_str()).unwrap_or_else(|| map.of().zero()),
                Value::Missing | Value::Nil => return Err(refused("value is nil; should be of type string")),
                other => {
                    return Err(Reason::Refused(format!("value has type {}; should be string", other.type_name())));
                }
            },
            other => return Err(Reason::Refused(format!("can't index item of type {}", other.type_name()))),
        };
    }
    Ok(match item {
        Value::Missing => Value::Nil,
        item => item,
    })
}

/// Converts a key to an index into `length` elements. `length` itself is allowed, because `slice` may end there.
fn position(key: &Value<'_>, length: usize) -> std::result::Result<usize, Reason> {
    match key {
        Value::Int(number) | Value::Long(number) => usize::try_from(*number)
            .ok()
            .filter(|at| *at <= length)
            .ok_or_else(|| Reason::Refused(format!("index out of range: {number}"))),
        Value::Missing | Value::Nil => Err(refused("cannot index slice/array with nil")),
        other => Err(Reason::Refused(format!("cannot index slice/array with type {}", other.type_name()))),
    }
}

fn slice<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let length = match args.any(0) {
        Value::Text(_) if args.len() == 4 => return Err(refused("cannot 3-index slice a string")),
        Value::Text(text) => text.as_str().len(),
        Value::List(list) => list.len(),
        Value::Missing | Value::Nil => return Err(refused("slice of untyped nil")),
        other => return Err(Reason::Refused(format!("can't slice item of type {}", other.type_name()))),
    };
    let positions =
        args.all()[1..].iter().map(|key| position(key, length)).collect::<std::result::Result<Vec<_>, _>>()?;
    let start = positions.first().copied().unwrap_or(0);
    let end = positions.get(1).copied().unwrap_or(length);
    let capacity = positions.get(2).copied().unwrap_or(length);
    if start > end || end > capacity {
        return Err(refused("invalid slice index"));
    }
    match args.any(0) {
        Value::Text(Text::Borrowed(text)) => {
            text.get(start..end).map(Value::from).ok_or_else(|| refused("slice within a character"))
        }
        Value::Text(text) => {
            text.as_str().get(start..end).map(Value::made).ok_or_else(|| refused("slice within a character"))
        }
        Value::List(List::Json(items, of)) => Ok(Value::List(List::Json(&items[start..end], *of))),
        Value::List(list) => Value::list(list.iter().skip(start).take(end - start).collect()),
        other => Ok(other.clone()),
    }
}

/// Prints the arguments, with a space between two adjacent arguments if neither is a string.
pub(super) fn print<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<'a> {
    let mut out = String::new();
    let mut sink = Sink::new(&mut out, budget);
    let mut text_before = true;
    for value in args.all() {
        let text = matches!(value, Value::Text(_));
        sink.push(if text || text_before { "" } else { " " })?;
        print::verb_v(&mut sink, value)?;
        text_before = text;
    }
    Ok(Value::from(out))
}

fn println<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<'a> {
    let mut out = String::new();
    let mut sink = Sink::new(&mut out, budget);
    for (index, value) in args.all().iter().enumerate() {
        sink.push(if index > 0 { " " } else { "" })?;
        print::verb_v(&mut sink, value)?;
    }
    sink.push("\n")?;
    Ok(Value::from(out))
}

/// Escapes the arguments as they are printed; a missing or null argument is printed as `<no value>`.
fn escaped<'a>(budget: &mut Budget, args: Args<'_, 'a>, escape: fn(char, &mut String)) -> Result<'a> {
    let shown = |value: &Value<'a>| match value {
        Value::Missing | Value::Nil => Value::from("<no value>"),
        value => value.clone(),
    };
    let shown: Vec<_> = args.all().iter().map(shown).collect();
    let plain = print(budget, Args(&shown))?;
    let mut out = String::new();
    plain.as_str().unwrap_or_default().chars().for_each(|next| escape(next, &mut out));
    Ok(Value::from(out))
}

fn html(next: char, out: &mut String) {
    match next {
        '\0' => out.push('\u{fffd}'),
        '"' => out.push_str("&#34;"),
        '\'' => out.push_str("&#39;"),
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        next => out.push(next),
    }
}

fn js(next: char, out: &mut String) {
    match next {
        '\\' => out.push_str("\\\\"),
        '\'' => out.push_str("\\'"),
        '"' => out.push_str("\\\""),
        '<' | '>' | '&' | '=' | '\0'..='\x1f' => out.push_str(&format!("\\u{:04X}", u32::from(next))),
        next => out.push(next),
    }
}

fn url(next: char, out: &mut String) {
    match next {
        ' ' => out.push('+'),
        '-' | '_' | '.' | '~' => out.push(next),
        next if next.is_ascii_alphanumeric() => out.push(next),
        next => next.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| out.push_str(&format!("%{byte:02X}"))),
    }
}
