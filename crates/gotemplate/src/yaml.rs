//! Values as YAML, byte for byte as sigs.k8s.io/yaml writes it.
//!
//! sigs.k8s.io/yaml has the format of Go's go-yaml v2: keys in natural order, indentation of two spaces, lists not
//! indented under their key, and strings plain wherever YAML 1.1 reads them back as strings.

mod scalar;
mod sort;

use super::budget::Budget;
use super::error::Reason;
use super::json;
use super::print::{self, Sink};
use super::value::{List, Text, Value};

/// Returns a value as a YAML document with a newline at its end, byte for byte as sigs.k8s.io/yaml writes it, the
/// library behind Helm's and Kubernetes' `toYaml`.
///
/// # Errors
/// The budget is spent, or the value nests more than 200 levels deep.
pub fn write_yaml(value: &Value<'_>, budget: &mut Budget) -> Result<String, Reason> {
    let mut out = String::new();
    let mut sink = Sink::new(&mut out, budget);
    match flat(value) {
        Flat::Map(entries) if !entries.is_empty() => mapping(&mut sink, entries, 0, false)?,
        Flat::List(items) if !items.is_empty() => sequence(&mut sink, &items, 0, false)?,
        other => scalar_line(&mut sink, other, 2)?,
    }
    Ok(out)
}

/// A value, by the form in which YAML writes it.
enum Flat<'v, 'a> {
    Plain(String),
    Text(&'v str),
    List(List<'a>),
    Map(Vec<(Text<'a>, Value<'a>)>),
}

fn flat<'v, 'a>(value: &'v Value<'a>) -> Flat<'v, 'a> {
    match value {
        Value::Missing | Value::Nil => Flat::Plain("null".to_owned()),
        Value::Bool(truth) => Flat::Plain(truth.to_string()),
        Value::Int(number) | Value::Long(number) | Value::Enum { number, .. } => Flat::Plain(number.to_string()),
        Value::Uint(number) => Flat::Plain(number.to_string()),
        Value::Float(number) => Flat::Plain(float(*number)),
        Value::Text(text) => Flat::Text(text.as_str()),
        Value::List(items) => Flat::List(items.clone()),
        Value::Map(entries) => Flat::Map(entries.sorted()),
        Value::Struct(shaped) if shaped.is_nil() => Flat::Plain("null".to_owned()),
        Value::Struct(shaped) => {
            let present = shaped.fields().filter(|(field, _)| shaped.has(field));
            Flat::Map(present.map(|(field, value)| (Text::Borrowed(field.json), value)).collect())
        }
        Value::Record(record) => {
            Flat::Map(record.fields.iter().map(|(name, value)| (Text::Borrowed(name), value.clone())).collect())
        }
    }
}

/// Formats a number. sigs.k8s.io/yaml encodes JSON first, which has no exponent below 1e21; a number without a fraction
/// in that JSON is an integer in YAML.
fn float(number: f64) -> String {
    let json = json::number(number).unwrap_or_else(|_| "null".to_owned());
    match json.parse::<i64>() {
        Ok(whole) => whole.to_string(),
        Err(_) if json.parse::<u64>().is_ok() => json,
        Err(_) => print::float(number),
    }
}

fn inline(sink: &mut Sink<'_>, value: Flat<'_, '_>, indent: usize) -> Result<(), Reason> {
    match value {
        Flat::Plain(text) => sink.push(&text),
        Flat::Text(text) => scalar::value(sink, text, indent),
        Flat::List(_) => sink.push("[]"),
        Flat::Map(_) => sink.push("{}"),
    }
}

/// Writes the entries of a mapping, each on a line of its own. If `here` is set, the first entry starts in the current
/// line.
fn mapping(sink: &mut Sink<'_>, entries: Vec<(Text<'_>, Value<'_>)>, indent: usize, here: bool) -> Result<(), Reason> {
    let entries = sort::sorted(entries, &|(key, _)| key.as_str());
    sink.nested(|sink| {
        for (index, (key, value)) in entries.iter().enumerate() {
            sink.fill(' ', if here && index == 0 { 0 } else { indent })?;
            let simple = scalar::key(sink, key.as_str(), indent)?;
            sink.push(":")?;
            match flat(value) {
                value if !simple => compact(sink, value, indent)?,
                Flat::Map(entries) if !entries.is_empty() => {
                    sink.push("\n")?;
                    mapping(sink, entries, indent + 2, false)?;
                }
                Flat::List(items) if !items.is_empty() => {
                    sink.push("\n")?;
                    sequence(sink, &items, indent, false)?;
                }
                other => line(sink, other, indent)?,
            }
        }
        Ok(())
    })
}

fn sequence(sink: &mut Sink<'_>, items: &List<'_>, indent: usize, here: bool) -> Result<(), Reason> {
    sink.nested(|sink| {
        for (index, item) in items.iter().enumerate() {
            sink.fill(' ', if here && index == 0 { 0 } else { indent })?;
            sink.push("-")?;
            compact(sink, flat(&item), indent)?;
        }
        Ok(())
    })
}

/// Writes a value that starts in the current line.
fn compact(sink: &mut Sink<'_>, value: Flat<'_, '_>, indent: usize) -> Result<(), Reason> {
    match value {
        Flat::Map(entries) if !entries.is_empty() => {
            sink.push(" ")?;
            mapping(sink, entries, indent + 2, true)
        }
        Flat::List(items) if !items.is_empty() => {
            sink.push(" ")?;
            sequence(sink, &items, indent + 2, true)
        }
        other => line(sink, other, indent),
    }
}

/// Writes a scalar as the rest of the current line.
fn line(sink: &mut Sink<'_>, value: Flat<'_, '_>, indent: usize) -> Result<(), Reason> {
    sink.push(" ")?;
    scalar_line(sink, value, indent + 2)
}

/// Writes a scalar and a line break, unless the scalar ends with one.
fn scalar_line(sink: &mut Sink<'_>, value: Flat<'_, '_>, indent: usize) -> Result<(), Reason> {
    let literal = matches!(value, Flat::Text(text) if scalar::is_literal(text));
    inline(sink, value, indent)?;
    sink.push(if literal && sink.ends_line() { "" } else { "\n" })
}
