//! sprig's functions on strings.

use crate::budget::Budget;
use crate::error::Reason;
use crate::function::{ANY, Args, Functions};
use crate::print;
use crate::printf::quoted;
use crate::value::{Text, Value};

type Result<'a> = std::result::Result<Value<'a>, Reason>;

pub(super) fn register(functions: Functions) -> Functions {
    let functions = functions
        .with("trim", 1, 1, |_, args| part(args.text(0)?, str::trim))
        .with("trimAll", 2, 2, |_, args| part(args.text(1)?, |text| trim_all(args.str(0).unwrap_or_default(), text)))
        .with("trimPrefix", 2, 2, |_, args| {
            part(args.text(1)?, |text| args.str(0).ok().and_then(|prefix| text.strip_prefix(prefix)).unwrap_or(text))
        })
        .with("trimSuffix", 2, 2, |_, args| {
            part(args.text(1)?, |text| args.str(0).ok().and_then(|suffix| text.strip_suffix(suffix)).unwrap_or(text))
        })
        .with("trunc", 2, 2, |_, args| trunc(args))
        .with("substr", 3, 3, |_, args| substr(args))
        .with("upper", 1, 1, |_, args| Ok(Value::from(args.str(0)?.to_uppercase())))
        .with("lower", 1, 1, |_, args| Ok(Value::from(args.str(0)?.to_lowercase())))
        .with("title", 1, 1, |_, args| Ok(Value::from(title(args.str(0)?))))
        .with("nospace", 1, 1, |_, args| {
            Ok(Value::from(args.str(0)?.chars().filter(|next| !next.is_whitespace()).collect::<String>()))
        })
        .with("contains", 2, 2, |_, args| Ok(Value::Bool(args.str(1)?.contains(args.str(0)?))))
        .with("hasPrefix", 2, 2, |_, args| Ok(Value::Bool(args.str(1)?.starts_with(args.str(0)?))))
        .with("hasSuffix", 2, 2, |_, args| Ok(Value::Bool(args.str(1)?.ends_with(args.str(0)?))));
    functions
        .with("repeat", 2, 2, repeat)
        .with("replace", 3, 3, replace)
        .with("indent", 2, 2, |budget, args| Ok(Value::from(indent(budget, args, "")?)))
        .with("nindent", 2, 2, |budget, args| Ok(Value::from(indent(budget, args, "\n")?)))
        .with("quote", 0, ANY, |budget, args| each(budget, args, |text| quoted(text, false)))
        .with("squote", 0, ANY, |budget, args| each(budget, args, |text| format!("'{text}'")))
        .with("cat", 0, ANY, |budget, args| each(budget, args, str::to_owned))
        .with("plural", 3, 3, |_, args| Ok(Value::Text(args.text(usize::from(args.int(2)? != 1))?.clone())))
        .alias("trimall", "trimAll")
        .with("toString", 1, 1, |budget, args| text(budget, args.any(0)).map(Value::Text))
}

/// Converts a value to a string, like sprig's `strval`.
pub(super) fn text<'a>(budget: &mut Budget, value: &Value<'a>) -> std::result::Result<Text<'a>, Reason> {
    match value {
        Value::Text(text) => Ok(text.clone()),
        other => Ok(Text::Shared(print::sprint(other, budget)?.into())),
    }
}

/// Returns the part of a string that `of` selects; the result is borrowed if the string is.
fn part<'a>(text: &Text<'a>, of: impl Fn(&str) -> &str) -> Result<'a> {
    Ok(match text {
        Text::Borrowed(text) => Value::from(of(text)),
        Text::Shared(text) => Value::made(of(text)),
    })
}

fn trim_all<'t>(characters: &str, text: &'t str) -> &'t str {
    text.trim_matches(|next| characters.contains(next))
}

/// Returns the first bytes of a string or, with a negative number, the last bytes, but never part of a character.
fn trunc<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let length = args.int(0)?;
    let bytes = usize::try_from(length.unsigned_abs()).unwrap_or(usize::MAX);
    part(args.text(1)?, |text| match length {
        0.. => &text[..text.floor_char_boundary(bytes)],
        _ => &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..],
    })
}

/// Returns the part of a string from one byte index to before another, but never part of a character.
fn substr<'a>(args: Args<'_, 'a>) -> Result<'a> {
    let (start, end, text) = (args.int(0)?, args.int(1)?, args.text(2)?);
    let length = text.as_str().len();
    let within = |at: i64| usize::try_from(at).ok().filter(|at| *at <= length);
    let range = match (within(start), within(end)) {
        (None, Some(end)) if start < 0 => Some((0, end)),
        (Some(start), None) => Some((start, length)),
        (Some(start), Some(end)) if start <= end => Some((start, end)),
        _ => None,
    };
    let (start, end) = range.ok_or_else(|| Reason::Refused("slice bounds out of range".to_owned()))?;
    part(text, |text| &text[text.floor_char_boundary(start)..text.floor_char_boundary(end)])
}

fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut within = false;
    for next in text.chars() {
        match within {
            true => out.push(next),
            false => out.extend(next.to_uppercase()),
        }
        within = next == '_' || next == '\'' || next.is_alphanumeric();
    }
    out
}

fn repeat<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<'a> {
    let (times, text) = (args.int(0)?, args.str(1)?);
    let times = usize::try_from(times).map_err(|_| Reason::Refused("negative repeat count".to_owned()))?;
    budget.bytes(text.len().saturating_mul(times))?;
    Ok(Value::from(text.repeat(times)))
}

fn replace<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<'a> {
    let (old, new, text) = (args.str(0)?, args.str(1)?, args.str(2)?);
    budget.bytes(text.matches(old).count().saturating_mul(new.len()))?;
    Ok(Value::from(text.replace(old, new)))
}

fn indent(budget: &mut Budget, args: Args<'_, '_>, first: &str) -> std::result::Result<String, Reason> {
    let width = usize::try_from(args.int(0)?).map_err(|_| Reason::Refused("negative indentation".to_owned()))?;
    let text = args.str(1)?;
    let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let added = lines.saturating_mul(width);
    budget.bytes(added)?;
    let pad = " ".repeat(width);
    let mut out = String::with_capacity(first.len() + text.len() + added);
    out.push_str(first);
    for line in text.split_inclusive('\n') {
        out.push_str(&pad);
        out.push_str(line);
    }
    // The empty line after the last line break is indented as well.
    if text.is_empty() || text.ends_with('\n') {
        out.push_str(&pad);
    }
    Ok(out)
}

/// Converts each argument that is not null with `form`, and joins the results by spaces.
fn each<'a>(budget: &mut Budget, args: Args<'_, 'a>, form: impl Fn(&str) -> String) -> Result<'a> {
    let present = args.all().iter().filter(|value| !matches!(value, Value::Missing | Value::Nil));
    let forms = present
        .map(|value| text(budget, value).map(|text| form(text.as_str())))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    Ok(Value::from(forms.join(" ")))
}
