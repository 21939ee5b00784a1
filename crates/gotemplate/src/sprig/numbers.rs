//! sprig's arithmetic functions, on integers by default.

use std::num::{IntErrorKind, ParseIntError};

use crate::error::Reason;
use crate::function::{ANY, Args, Functions};
use crate::literal::{self, Number};
use crate::value::Value;

type Result<'a> = std::result::Result<Value<'a>, Reason>;

pub(super) fn register(functions: Functions) -> Functions {
    functions
        .with("int", 1, 1, |_, args| Ok(Value::Int(integer(args.any(0)))))
        .with("int64", 1, 1, |_, args| Ok(Value::Long(integer(args.any(0)))))
        .with("atoi", 1, 1, |_, args| Ok(Value::Int(decimal(args.str(0)?))))
        .with("float64", 1, 1, |_, args| Ok(Value::Float(float(args.any(0)))))
        .with("add", 0, ANY, |_, args| Ok(Value::Long(args.all().iter().map(integer).fold(0, i64::wrapping_add))))
        .with("add1", 1, 1, |_, args| Ok(Value::Long(integer(args.any(0)).wrapping_add(1))))
        .with("sub", 2, 2, |_, args| Ok(Value::Long(integer(args.any(0)).wrapping_sub(integer(args.any(1))))))
        .with("mul", 1, ANY, |_, args| Ok(Value::Long(args.all().iter().map(integer).fold(1, i64::wrapping_mul))))
        .with("div", 2, 2, |_, args| divided(args, i64::wrapping_div))
        .with("mod", 2, 2, |_, args| divided(args, i64::wrapping_rem))
        .with("max", 1, ANY, |_, args| Ok(Value::Long(args.all().iter().map(integer).max().unwrap_or_default())))
        .with("min", 1, ANY, |_, args| Ok(Value::Long(args.all().iter().map(integer).min().unwrap_or_default())))
        .with("maxf", 1, ANY, |_, args| {
            Ok(Value::Float(args.all().iter().map(float).fold(f64::NEG_INFINITY, f64::max)))
        })
        .with("minf", 1, ANY, |_, args| Ok(Value::Float(args.all().iter().map(float).fold(f64::INFINITY, f64::min))))
        .with("round", 2, 3, |_, args| Ok(Value::Float(rounded(args)?)))
        .with("toDecimal", 1, 1, |budget, args| {
            let digits = crate::print::sprint(args.any(0), budget)?;
            Ok(Value::Long(i64::from_str_radix(&digits, 8).unwrap_or_default()))
        })
        .alias("biggest", "max")
        .with("floor", 1, 1, |_, args| Ok(Value::Float(float(args.any(0)).floor())))
        .with("ceil", 1, 1, |_, args| Ok(Value::Float(float(args.any(0)).ceil())))
}

/// Rounds to a number of decimal digits. The third argument is the least fraction that is rounded up, by default one
/// half.
fn rounded(args: Args<'_, '_>) -> std::result::Result<f64, Reason> {
    let on = match args.any(2) {
        Value::Float(on) => *on,
        Value::Missing => 0.5,
        other => return Err(other.type_error("float64")),
    };
    let power = 10_f64.powf(float(args.any(1)));
    args.int(1)?;
    let digits = power * float(args.any(0));
    let whole = if digits - digits.trunc() >= on { digits.ceil() } else { digits.floor() };
    Ok(whole / power)
}

/// Converts a value to an integer; 0 if it cannot be converted.
#[expect(clippy::cast_possible_truncation, reason = "`as` keeps to the range of the integer")]
pub(super) fn integer(value: &Value<'_>) -> i64 {
    match value {
        Value::Int(number) | Value::Long(number) | Value::Enum { number, .. } => *number,
        Value::Float(number) => *number as i64,
        Value::Bool(truth) => i64::from(*truth),
        Value::Text(text) => match literal::number(without_zeros(text.as_str())) {
            Some(Number::Int(number)) => number,
            _ => 0,
        },
        _ => 0,
    }
}

/// Removes a point that only zeros follow, and the zeros.
fn without_zeros(text: &str) -> &str {
    match text.trim_end_matches('0') {
        start if start.len() < text.len() => start.strip_suffix('.').unwrap_or(text),
        _ => text,
    }
}

/// Parses a decimal integer like Go's `Atoi` with its error ignored: an integer that is out of range becomes the nearest `i64`, any other
/// string 0.
pub(super) fn decimal(text: &str) -> i64 {
    text.parse().unwrap_or_else(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => i64::MAX,
        IntErrorKind::NegOverflow => i64::MIN,
        _ => 0,
    })
}

/// Parses a float, also a hexadecimal one; 0 if the text is not a number or is out of range.
fn text_float(text: &str) -> f64 {
    let unsigned = text.trim_start_matches(['+', '-']);
    if unsigned.starts_with("0x") || unsigned.starts_with("0X") {
        return match literal::number(text) {
            Some(Number::Float(number)) => number,
            _ => 0.0,
        };
    }
    let is_word = !text.contains(|next: char| next.is_ascii_digit());
    let plain = text.replace('_', "");
    let text = if literal::well_separated(text) { plain.as_str() } else { text };
    text.parse().ok().filter(|number: &f64| number.is_finite() || is_word).unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "as in Go")]
pub(super) fn float(value: &Value<'_>) -> f64 {
    match value {
        Value::Float(number) => *number,
        Value::Text(text) => text_float(text.as_str()),
        other => integer(other) as f64,
    }
}

fn divided<'a>(args: Args<'_, 'a>, divide: fn(i64, i64) -> i64) -> Result<'a> {
    match integer(args.any(1)) {
        0 => Err(Reason::Refused("integer divide by zero".to_owned())),
        divisor => Ok(Value::Long(divide(integer(args.any(0)), divisor))),
    }
}
