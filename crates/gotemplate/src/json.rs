//! Values as JSON, byte for byte as Go's encoding/json writes it.

use super::budget::Budget;
use super::error::Reason;
use super::print::Sink;
use super::value::{Map, Struct, Value};

/// Returns a value as compact JSON, byte for byte as Go's `json.Marshal` writes it: keys of maps sorted, fields of
/// structs in their order, `<`, `>` and `&` escaped.
///
/// # Errors
/// The budget is spent, the value nests more than 200 levels deep, or a number is not finite.
pub fn write_json(value: &Value<'_>, budget: &mut Budget) -> Result<String, Reason> {
    let mut out = String::new();
    write(&mut Sink::new(&mut out, budget), value)?;
    Ok(out)
}

/// Writes a value as JSON in which `<`, `>` and `&` are not escaped.
pub(super) fn write_raw(value: &Value<'_>, budget: &mut Budget) -> Result<String, Reason> {
    let json = write_json(value, budget)?;
    let mut out = String::with_capacity(json.len());
    let mut rest = json.as_str();
    while let Some(at) = rest.find('\\') {
        let (plain, escape) = rest.split_at(at);
        out.push_str(plain);
        let (shown, length) = match escape.get(..6) {
            Some("\\u003c") => ("<", 6),
            Some("\\u003e") => (">", 6),
            Some("\\u0026") => ("&", 6),
            // The first two characters of any other escape are copied together: the second backslash of `\\` does not
            // start an escape.
            _ => (escape.get(..2).unwrap_or(escape), 2),
        };
        out.push_str(shown);
        rest = escape.get(length..).unwrap_or_default();
    }
    out.push_str(rest);
    Ok(out)
}

fn write(sink: &mut Sink<'_>, value: &Value<'_>) -> Result<(), Reason> {
    match value {
        Value::Missing | Value::Nil => sink.push("null"),
        Value::Bool(truth) => sink.push(if *truth { "true" } else { "false" }),
        Value::Int(number) | Value::Long(number) => sink.push(&number.to_string()),
        Value::Enum { name, .. } => string(sink, name),
        Value::Uint(number) => sink.push(&number.to_string()),
        Value::Float(value) => sink.push(&number(*value)?),
        Value::Text(text) => string(sink, text.as_str()),
        Value::List(items) => sink.nested(|sink| {
            sink.push("[")?;
            for (index, item) in items.iter().enumerate() {
                sink.push(if index > 0 { "," } else { "" })?;
                write(sink, &item)?;
            }
            sink.push("]")
        }),
        Value::Map(entries) => sink.nested(|sink| map(sink, entries)),
        Value::Struct(shaped) if shaped.is_nil() => sink.push("null"),
        Value::Struct(shaped) => sink.nested(|sink| fields(sink, shaped)),
        Value::Record(record) => sink.nested(|sink| {
            let fields = record.fields.iter().map(|(name, value)| (*name, value.clone()));
            members(sink, fields)
        }),
    }
}

fn map(sink: &mut Sink<'_>, entries: &Map<'_>) -> Result<(), Reason> {
    let sorted = entries.sorted();
    members(sink, sorted.iter().map(|(key, value)| (key.as_str(), value.clone())))
}

/// Writes those fields of a struct that are present in its JSON.
fn fields(sink: &mut Sink<'_>, shaped: &Struct<'_>) -> Result<(), Reason> {
    let present: Vec<_> = shaped.fields().filter(|(field, _)| shaped.has(field)).collect();
    match present.as_slice() {
        [(field, value)] if field.json.is_empty() => write(sink, value),
        present => members(sink, present.iter().map(|(field, value)| (field.json, value.clone()))),
    }
}

fn members<'m, 'a>(sink: &mut Sink<'_>, members: impl Iterator<Item = (&'m str, Value<'a>)>) -> Result<(), Reason> {
    sink.push("{")?;
    for (index, (key, value)) in members.enumerate() {
        sink.push(if index > 0 { "," } else { "" })?;
        string(sink, key)?;
        sink.push(":")?;
        write(sink, &value)?;
    }
    sink.push("}")
}

/// Returns a number as Go's encoding/json writes it: with the fewest digits that are parsed as the same number, and
/// with an exponent if its magnitude is below 1e-6 or at least 1e21.
///
/// # Errors
/// The number is not finite.
pub fn number(number: f64) -> Result<String, Reason> {
    if !number.is_finite() {
        return Err(Reason::Refused("json: unsupported value".to_owned()));
    }
    let magnitude = number.abs();
    if magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
        return Ok(format!("{number}"));
    }
    let scientific = format!("{number:e}");
    Ok(if magnitude < 1.0 { scientific } else { scientific.replace('e', "e+") })
}

fn string(sink: &mut Sink<'_>, text: &str) -> Result<(), Reason> {
    sink.push("\"")?;
    let mut plain = 0;
    for (at, next) in text.char_indices() {
        let escape = match next {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\x08' => "\\b",
            '\x0c' => "\\f",
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\x1f' => "",
            _ => continue,
        };
        sink.push(&text[plain..at])?;
        match escape {
            "" => sink.push(&format!("\\u{:04x}", u32::from(next)))?,
            escape => sink.push(escape)?,
        }
        plain = at + next.len_utf8();
    }
    sink.push(&text[plain..])?;
    sink.push("\"")
}
