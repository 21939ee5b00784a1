//! Scalars as Go's decoders accept them: sigs.k8s.io/yaml converts numbers and booleans to strings if the field is a
//! string.

use gocompat::quantity as amount;
use gotemplate::{general_float, json_number};
use jiff::Timestamp;
use serde_json::{Number, Value};

use super::Mismatch;

/// The length of `2006-01-02T15:04:05`.
const SECONDS: usize = 19;

pub(super) fn text(value: Value) -> Result<Value, Mismatch> {
    match value {
        Value::String(text) => Ok(Value::String(text)),
        Value::Null => Ok(Value::String(String::new())),
        Value::Bool(truth) => Ok(Value::String(truth.to_string())),
        Value::Number(number) => Ok(Value::String(match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => general_float(float),
            None => number.to_string(),
        })),
        other => Err(Mismatch::new("a text", &other)),
    }
}

pub(super) fn truth(value: &Value) -> Result<Value, Mismatch> {
    match value {
        Value::Bool(truth) => Ok(Value::Bool(*truth)),
        Value::Null => Ok(Value::Bool(false)),
        other => Err(Mismatch::new("true or false", other)),
    }
}

pub(super) fn int32(value: &Value) -> Result<Value, Mismatch> {
    integer::<i32>(value).map(Value::from).ok_or_else(|| Mismatch::new("an integer of 32 bits", value))
}

pub(super) fn int64(value: &Value) -> Result<Value, Mismatch> {
    integer::<i64>(value).map(Value::from).ok_or_else(|| Mismatch::new("an integer of 64 bits", value))
}

fn integer<T: TryFrom<i64>>(value: &Value) -> Option<T> {
    let number: i64 = match value {
        Value::Null => 0,
        Value::Number(number) => decimal(number)?.parse().ok()?,
        _ => return None,
    };
    T::try_from(number).ok()
}

/// Returns a number as `encoding/json` writes it.
fn decimal(number: &Number) -> Option<String> {
    match number.as_f64().filter(|_| number.is_f64()) {
        Some(float) => json_number(float).ok(),
        None => Some(number.to_string()),
    }
}

pub(super) fn int_or_string(value: Value) -> Result<Value, Mismatch> {
    match value {
        Value::String(text) => Ok(Value::String(text)),
        other => match integer::<i32>(&other) {
            Some(number) => Ok(number.into()),
            None => Err(Mismatch::new("an integer of 32 bits or a text", &other)),
        },
    }
}

pub(super) fn quantity(value: &Value) -> Result<Value, Mismatch> {
    let canonical = match value {
        Value::Null => Some("0".to_owned()),
        Value::String(text) => amount::canonical(text.trim()),
        Value::Number(number) => decimal(number).and_then(|text| amount::canonical(&text)),
        _ => None,
    };
    canonical.map(Value::String).ok_or_else(|| Mismatch::new("a quantity, such as 500m or 2Gi", value))
}

/// Converts an RFC 3339 time to UTC and whole seconds.
pub(super) fn time(value: &Value) -> Result<Value, Mismatch> {
    const EXPECTED: &str = "a time, such as 2006-01-02T15:04:05Z";
    match value {
        Value::Null => Ok(Value::Null),
        Value::String(text) => {
            let time = whole_seconds(text).and_then(|text| text.parse::<Timestamp>().ok());
            let time = time.ok_or_else(|| Mismatch::new(EXPECTED, value))?;
            Ok(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into())
        }
        other => Err(Mismatch::new(EXPECTED, other)),
    }
}

/// Returns a time without its fraction of a second, which may have any number of digits; `None` if Go refuses the form.
/// Unlike jiff, Go refuses a space in place of the `T`, and 60 seconds.
fn whole_seconds(text: &str) -> Option<String> {
    let form = |text: &str, pattern: &str| {
        text.len() == pattern.len()
            && text.bytes().zip(pattern.bytes()).all(|(byte, want)| match want {
                b'0' => byte.is_ascii_digit(),
                want => byte == want,
            })
    };
    let (start, rest) = text.split_at_checked(SECONDS)?;
    let zone = match rest.strip_prefix(['.', ',']) {
        Some(rest) => rest.trim_start_matches(|digit: char| digit.is_ascii_digit()),
        None => rest,
    };
    let fraction = rest.len() - zone.len();
    let is_time = form(start, "0000-00-00T00:00:00")
        && !start.ends_with("60")
        && fraction != 1
        && (zone == "Z" || form(zone, "+00:00") || form(zone, "-00:00"));
    is_time.then(|| format!("{start}{zone}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_any_number_of_digits_after_the_second() {
        for fraction in ["", ".1", ".123456789", ".1234567890", ",99999999999999999999"] {
            let text = format!("2026-01-02T03:04:05{fraction}+01:00");
            assert_eq!(time(&text.as_str().into()).unwrap(), "2026-01-02T02:04:05Z", "{text}");
        }
        for text in ["2026-01-02T03:04:05.Z", "2026-01-02T03:04:60Z", "2026-01-02T03:04:05", "2026-13-02T03:04:05Z"] {
            time(&text.into()).unwrap_err();
        }
    }
}
