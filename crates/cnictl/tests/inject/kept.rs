//! Compares an object before and after it was parsed and serialized by a Kubernetes type: no value may be lost or
//! added.
//!
//! The types are Go's, so that a field that the committed table lacks or has with another type is compared, too. Values
//! must be equal or in the canonical form of Go's types.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::random::{Field, Types};

/// Returns the paths at which `after` lacks a value of `before` or has a different one, or has an additional value that
/// is not the zero value of its type.
pub(crate) fn changes(types: &Types, of: &str, before: &Value, after: &Value) -> Vec<String> {
    let mut comparison = Comparison { types, changes: Vec::new() };
    comparison.value("", of, before, Some(after));
    comparison.changes
}

struct Comparison<'a> {
    types: &'a Types,
    changes: Vec<String>,
}

impl Comparison<'_> {
    fn change(&mut self, path: &str, of: &str, before: &Value, after: Option<&Value>) {
        let after = after.map_or_else(|| "absent".to_owned(), Value::to_string);
        self.changes.push(format!("{path} ({of}): {before} is {after}"));
    }

    fn value(&mut self, path: &str, of: &str, before: &Value, after: Option<&Value>) {
        if before.is_null() {
            return if after.is_some_and(|after| !is_zero(after)) {
                self.change(path, of, before, after);
            };
        }
        if let Some(inner) = of.strip_prefix('*') {
            return self.value(path, inner, before, after);
        }
        match (before, after) {
            (Value::Array(items), Some(Value::Array(after))) if of.starts_with("[]") && items.len() == after.len() => {
                for (at, (item, after)) in items.iter().zip(after).enumerate() {
                    self.value(&format!("{path}[{at}]"), &of[2..], item, Some(after));
                }
            }
            (Value::Object(before), Some(Value::Object(after))) => match of.strip_prefix("map[string]") {
                Some(inner) => self.map(path, inner, before, after),
                None => self.structure(path, of, before, after),
            },
            (scalar, Some(after)) if is_canonical(of, scalar, after) => {}
            _ => self.change(path, of, before, after),
        }
    }

    fn map(&mut self, path: &str, of: &str, before: &Map<String, Value>, after: &Map<String, Value>) {
        for key in before.keys().chain(after.keys().filter(|key| !before.contains_key(*key))) {
            let value = before.get(key).unwrap_or(&Value::Null);
            self.value(&format!("{path}.{key}"), of, value, after.get(key));
        }
    }

    fn structure(&mut self, path: &str, of: &str, before: &Map<String, Value>, after: &Map<String, Value>) {
        let fields = self.types.fields(of);
        for key in before.keys().chain(after.keys().filter(|key| !before.contains_key(*key))) {
            let field = fields.iter().find(|field| field.key == key);
            let Field { of, omits_zero, .. } = *field.unwrap_or(&Field { key: "", of: "raw", omits_zero: false });
            let value = before.get(key).unwrap_or(&Value::Null);
            let omitted = after.get(key).is_none_or(Value::is_null) && omits_zero && !of.starts_with('*');
            if !omitted || !self.is_zero_of(of, value) {
                self.value(&format!("{path}.{key}"), of, value, after.get(key));
            }
        }
    }

    /// Whether Go omits this value of the type `of`, which is not a pointer, because it is the zero value.
    fn is_zero_of(&self, of: &str, value: &Value) -> bool {
        match value {
            Value::Object(members) if !of.starts_with("map[string]") => members.iter().all(|(key, value)| {
                let field = self.types.fields(of).iter().find(|field| field.key == key);
                field.is_some_and(|field| !field.of.starts_with('*') && self.is_zero_of(field.of, value))
            }),
            // A number or a boolean in a string field is read as a string, which is not empty.
            Value::Number(_) | Value::Bool(_) => of != "string" && is_zero(value),
            value => is_zero(value),
        }
    }
}

/// Whether Go treats a value in a document like a missing value.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "0",
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.values().all(is_zero),
    }
}

/// Whether `after` is the form in which Go writes the scalar `before`.
fn is_canonical(of: &str, before: &Value, after: &Value) -> bool {
    match (of, before, after) {
        ("quantity", _, Value::String(after)) => amount(&text(before)).is_some_and(|sum| amount(after) == Some(sum)),
        ("time", Value::String(before), Value::String(after)) => {
            let second = |time: &str| time.parse::<Timestamp>().ok().map(Timestamp::as_second);
            after.ends_with('Z') && second(before).is_some() && second(before) == second(after)
        }
        ("string", Value::Number(before), Value::String(after)) => after.parse().ok() == before.as_f64(),
        ("string", Value::Bool(before), Value::String(after)) => *after == before.to_string(),
        ("string", Value::String(_), Value::String(_)) | ("raw", ..) => before == after,
        ("bool", Value::Bool(_), _) => before == after,
        ("int32" | "int64" | "intOrString", Value::Number(before), Value::Number(after)) => {
            before == after || (before.is_f64() && before.as_f64() == after.as_f64())
        }
        ("intOrString", Value::String(_), _) => before == after,
        _ => false,
    }
}

fn text(scalar: &Value) -> String {
    scalar.as_str().map_or_else(|| scalar.to_string(), str::to_owned)
}

/// Returns a quantity in units of 10⁻⁹, the finest that Kubernetes stores, rounded up.
fn amount(text: &str) -> Option<i128> {
    use bigdecimal::num_bigint::BigInt;
    use bigdecimal::{BigDecimal, RoundingMode, ToPrimitive};
    let text = text.trim();
    let suffix = text.trim_start_matches(['+', '-']).trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let unit = match suffix {
        "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei" => {
            let power = "KMGTPE".find(&suffix[..1])? + 1;
            BigDecimal::from(1_i64 << (10 * power))
        }
        exponent if exponent.len() > 1 => BigDecimal::new(BigInt::from(1), -exponent[1..].parse::<i64>().ok()?),
        suffix => {
            let power = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].iter().position(|unit| *unit == suffix)?;
            BigDecimal::new(BigInt::from(1), 9 - 3 * i64::try_from(power).ok()?)
        }
    };
    let number: BigDecimal = text.strip_suffix(suffix)?.parse().ok()?;
    let fine = number * unit * BigDecimal::from(1_000_000_000);
    fine.with_scale_round(0, RoundingMode::Up).to_i128()
}
