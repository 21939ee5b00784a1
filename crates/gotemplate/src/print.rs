//! Values as strings: Go's `%v`.
//!
//! `exec` prints the values of pipelines with this module; `printf` and functions that turn values into strings call it
//! too.

use super::budget::Budget;
use super::error::Reason;
use super::value::{List, Map, Struct, Value};

/// The maximum nesting of values that are written, in levels.
const MAX_NESTING: usize = 200;

/// The least power of ten that `%v` and `%g` write with an exponent.
const SCIENTIFIC: i32 = 6;

/// Whether a character ends a line in YAML 1.1.
pub(super) fn is_break(next: char) -> bool {
    matches!(next, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Output that is charged to a budget.
#[derive(Debug)]
pub(super) struct Sink<'b> {
    out: &'b mut String,
    budget: &'b mut Budget,
    depth: usize,
}

impl<'b> Sink<'b> {
    pub(super) fn new(out: &'b mut String, budget: &'b mut Budget) -> Self {
        Self { out, budget, depth: 0 }
    }

    pub(super) fn push(&mut self, text: &str) -> Result<(), Reason> {
        self.budget.bytes(text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    /// Writes an ASCII character this number of times.
    pub(super) fn fill(&mut self, with: char, times: usize) -> Result<(), Reason> {
        self.budget.bytes(times)?;
        self.out.extend(std::iter::repeat_n(with, times));
        Ok(())
    }

    /// Returns the number of characters in the current line.
    pub(super) fn column(&self) -> usize {
        self.out.chars().rev().take_while(|last| !is_break(*last)).count()
    }

    /// Whether the output ends with a line break.
    pub(super) fn ends_line(&self) -> bool {
        self.out.ends_with(is_break)
    }

    /// Calls `write` one level of nesting deeper, which costs a step.
    pub(super) fn nested(&mut self, write: impl FnOnce(&mut Self) -> Result<(), Reason>) -> Result<(), Reason> {
        if self.depth == MAX_NESTING {
            return Err(Reason::TooDeep(MAX_NESTING));
        }
        self.budget.step(1)?;
        self.depth += 1;
        let written = write(self);
        self.depth -= 1;
        written
    }
}

/// Writes the value of a pipeline as it is rendered.
pub(super) fn value(sink: &mut Sink<'_>, value: &Value<'_>) -> Result<(), Reason> {
    match value {
        Value::Missing => sink.push("<no value>"),
        value => verb_v(sink, value),
    }
}

/// Returns a value as Go's `fmt.Sprint` writes it.
///
/// # Errors
/// The budget is spent, or the value nests more than 200 levels deep.
pub fn sprint(value: &Value<'_>, budget: &mut Budget) -> Result<String, Reason> {
    let mut out = String::new();
    verb_v(&mut Sink::new(&mut out, budget), value)?;
    Ok(out)
}

/// Writes a value as `%v` formats it.
pub(super) fn verb_v(sink: &mut Sink<'_>, value: &Value<'_>) -> Result<(), Reason> {
    match value {
        Value::Missing | Value::Nil => sink.push("<nil>"),
        Value::Bool(truth) => sink.push(if *truth { "true" } else { "false" }),
        Value::Int(number) | Value::Long(number) => sink.push(&number.to_string()),
        Value::Uint(number) => sink.push(&number.to_string()),
        Value::Float(number) => sink.push(&float(*number)),
        Value::Text(text) => sink.push(text.as_str()),
        Value::Enum { name, .. } => sink.push(name),
        Value::List(items) => sink.nested(|sink| list(sink, items)),
        Value::Map(entries) => sink.nested(|sink| map(sink, entries)),
        Value::Struct(shaped) if shaped.is_nil() => sink.push("<nil>"),
        Value::Struct(shaped) => sink.nested(|sink| fields(sink, shaped)),
        Value::Record(record) if let Some(Value::Text(text)) = record.get("String") => sink.push(text.as_str()),
        Value::Record(record) => sink.nested(|sink| {
            sink.push("{")?;
            for (index, (_, value)) in record.fields.iter().enumerate() {
                sink.push(if index > 0 { " " } else { "" })?;
                verb_v(sink, value)?;
            }
            sink.push("}")
        }),
    }
}

fn list(sink: &mut Sink<'_>, items: &List<'_>) -> Result<(), Reason> {
    sink.push("[")?;
    for (index, item) in items.iter().enumerate() {
        sink.push(if index > 0 { " " } else { "" })?;
        verb_v(sink, &item)?;
    }
    sink.push("]")
}

fn map(sink: &mut Sink<'_>, entries: &Map<'_>) -> Result<(), Reason> {
    sink.push("map[")?;
    for (index, (key, value)) in entries.sorted().into_iter().enumerate() {
        sink.push(if index > 0 { " " } else { "" })?;
        sink.push(key.as_str())?;
        sink.push(":")?;
        verb_v(sink, &value)?;
    }
    sink.push("]")
}

fn fields(sink: &mut Sink<'_>, shaped: &Struct<'_>) -> Result<(), Reason> {
    sink.push("{")?;
    for (index, (_, value)) in shaped.fields().enumerate() {
        sink.push(if index > 0 { " " } else { "" })?;
        verb_v(sink, &value)?;
    }
    sink.push("}")
}

/// Returns a number as templates print it: with the fewest digits that are parsed as the same number, and with an
/// exponent if its magnitude is below 1e-4 or at least 1e6.
pub fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    match !(-4..SCIENTIFIC).contains(&exponent) {
        true => format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
        false => format!("{number}"),
    }
}
