//! sprig's functions for defaults, types, comparisons, copies and durations.

use std::collections::BTreeMap;

use crate::budget::Budget;
use crate::error::Reason;
use crate::function::{ANY, Args, Functions};
use crate::value::{Map, Value};

use super::lists::same;
use super::numbers::decimal;

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
        .with("typeIsLike", 2, 2, |_, args| {
            let (wanted, of) = (args.str(0)?, args.any(1).type_name());
            Ok(Value::Bool(wanted == of || of.strip_prefix('*') == Some(wanted)))
        })
        .with("deepEqual", 2, 2, |budget, args| Ok(Value::Bool(same(budget, args.any(0), args.any(1))?)))
        .with("deepCopy", 1, 1, |budget, args| match args.any(0) {
            Value::Missing | Value::Nil => Err(Reason::Refused("there is nothing to copy".to_owned())),
            value => copied(value, budget),
        })
        .with("hello", 0, 0, |_, _| Ok(Value::from("Hello!")))
        .with("duration", 1, 1, |_, args| Ok(Value::from(seconds(args.any(0)))))
        .with("durationRound", 1, 1, |_, args| Ok(Value::from(rounded(args.any(0)))))
        .alias("mustDeepCopy", "deepCopy")
}

fn ternary<'a>(args: Args<'_, 'a>) -> Result<'a> {
    match args.any(2) {
        Value::Bool(truth) => Ok(args.any(usize::from(!truth)).clone()),
        other => Err(other.type_error("bool")),
    }
}

/// Copies a value with all lists and maps in it, so that a template can change the maps of the copy.
pub(super) fn copied<'a>(value: &Value<'a>, budget: &mut Budget) -> Result<'a> {
    budget.step(1)?;
    budget.bytes(size_of::<Value<'_>>())?;
    match value {
        Value::List(items) => {
            Value::list(items.iter().map(|item| copied(&item, budget)).collect::<std::result::Result<_, _>>()?)
        }
        Value::Map(map) => {
            let mut entries = BTreeMap::new();
            for (key, value) in map.sorted() {
                entries.insert(key, copied(&value, budget)?);
            }
            Ok(Value::Map(Map::made(entries, map.of())?))
        }
        other => Ok(other.clone()),
    }
}

const SECOND: u64 = 1_000_000_000;

/// Formats a number of seconds as Go prints a duration. As in sprig, a number that is not an `int64`, such as a literal, is treated as
/// zero.
fn seconds(value: &Value<'_>) -> String {
    let seconds: i64 = match value {
        Value::Long(number) => *number,
        Value::Text(text) => decimal(text.as_str()),
        _ => 0,
    };
    // Go's multiplication wraps around, too.
    let nanoseconds = seconds.wrapping_mul(1_000_000_000);
    let (sign, rest) = (if nanoseconds < 0 { "-" } else { "" }, nanoseconds.unsigned_abs());
    let (whole, fraction) = (rest / SECOND, rest % SECOND);
    let fraction = if fraction == 0 { String::new() } else { format!(".{fraction:09}") };
    let fraction = fraction.trim_end_matches('0');
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, seconds) => format!("{sign}{seconds}{fraction}s"),
        (0, minutes, seconds) => format!("{sign}{minutes}m{seconds}{fraction}s"),
        (hours, minutes, seconds) => format!("{sign}{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

/// Formats a duration in its largest unit, rounded down.
fn rounded(value: &Value<'_>) -> String {
    let nanoseconds = match value {
        Value::Long(number) => number.unsigned_abs(),
        Value::Text(text) => nanoseconds(text.as_str()).unwrap_or_default(),
        _ => 0,
    };
    let hour = 3600 * SECOND;
    let day = 24 * hour;
    let units = [(365 * day, "y"), (30 * day, "mo"), (day, "d"), (hour, "h"), (60 * SECOND, "m"), (SECOND, "s")];
    let largest = units.into_iter().find(|(unit, _)| nanoseconds > *unit);
    largest.map_or_else(|| "0s".to_owned(), |(unit, name)| format!("{}{name}", nanoseconds / unit))
}

/// Parses a duration in Go's syntax, such as `-1h2.5m`, and returns its absolute value.
fn nanoseconds(text: &str) -> Option<u64> {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Some(0);
    }
    let mut sum = 0.0;
    while !rest.is_empty() || sum == 0.0 {
        let digits = rest.find(|next: char| !next.is_ascii_digit() && next != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let unit =
            rest[digits..].find(|next: char| next.is_ascii_digit() || next == '.').map_or(rest.len(), |at| digits + at);
        sum += number
            * match &rest[digits..unit] {
                "ns" => 1.0,
                "us" | "µs" | "μs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "m" => 60e9,
                "h" => 3600e9,
                _ => return None,
            };
        rest = &rest[unit..];
        if rest.is_empty() {
            break;
        }
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` keeps to the range of the integer"
    )]
    let whole = sum as u64;
    Some(whole)
}

fn kind(value: &Value<'_>) -> &'static str {
    match value {
        Value::Missing | Value::Nil => "invalid",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int",
        Value::Long(_) => "int64",
        Value::Uint(_) => "uint64",
        Value::Float(_) => "float64",
        Value::Text(_) => "string",
        Value::List(_) => "slice",
        Value::Map(_) => "map",
        Value::Struct(_) | Value::Record(_) => "struct",
        Value::Enum { .. } => "int32",
    }
}
