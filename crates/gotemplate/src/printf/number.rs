//! Numbers in `printf`.

use super::Spec;
use super::quote::quoted_char;
use crate::error::Reason;
use crate::print::{self, Sink};
use crate::value::Value;

impl Spec {
    pub(super) fn integer(self, sink: &mut Sink<'_>, verb: char, value: &Value<'_>) -> Result<(), Reason> {
        let (Value::Int(number) | Value::Long(number)) = *value else { return self.bad(sink, verb, value) };
        let magnitude = number.unsigned_abs();
        let (prefix, digits) = match verb {
            'v' | 'd' => ("", magnitude.to_string()),
            'b' => (if self.sharp { "0b" } else { "" }, format!("{magnitude:b}")),
            'o' => ("", format!("{magnitude:o}")),
            'O' => ("0o", format!("{magnitude:o}")),
            'x' => (if self.sharp { "0x" } else { "" }, format!("{magnitude:x}")),
            'X' => (if self.sharp { "0X" } else { "" }, format!("{magnitude:X}")),
            'c' => return self.text(sink, &character(number).to_string()),
            'q' => return self.text(sink, &quoted_char(character(number), self.plus)),
            'U' => return self.text(sink, &format!("U+{magnitude:04X}")),
            _ => return self.bad(sink, verb, value),
        };
        let sign = self.sign(number < 0);
        let digits = match self.precision {
            Some(0) if number == 0 => return Self { zero: false, ..self }.text(sink, ""),
            Some(precision) => zeroes(precision, &digits),
            None if self.zero && !self.minus => zeroes(self.width.saturating_sub(sign.len()), &digits),
            None => digits,
        };
        let octal = matches!(verb, 'o' | 'O') && self.sharp && !digits.starts_with('0');
        let leading = if octal { "0" } else { "" };
        Self { zero: false, ..self }.text(sink, &format!("{sign}{prefix}{leading}{digits}"))
    }

    fn sign(self, negative: bool) -> &'static str {
        match (negative, self.plus, self.space) {
            (true, _, _) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            (false, false, false) => "",
        }
    }

    pub(super) fn float(self, sink: &mut Sink<'_>, verb: char, number: f64) -> Result<(), Reason> {
        let magnitude = number.abs();
        let precision = self.precision.unwrap_or(6);
        let digits = match verb {
            'v' | 'g' | 'G' => {
                self.precision.map_or_else(|| print::float(magnitude), |precision| significant(magnitude, precision))
            }
            'f' | 'F' if magnitude.is_finite() => format!("{magnitude:.precision$}"),
            'e' | 'E' if magnitude.is_finite() => scientific(&format!("{magnitude:.precision$e}")),
            'f' | 'F' | 'e' | 'E' => print::float(magnitude),
            _ => return self.bad(sink, verb, &Value::Float(number)),
        };
        let digits = if verb.is_ascii_uppercase() && magnitude.is_finite() { digits.to_uppercase() } else { digits };
        let digits = digits.trim_start_matches('+');
        let negative = number.is_sign_negative() && !number.is_nan();
        let sign = if magnitude.is_infinite() && !negative { "+" } else { self.sign(negative) };
        let padded = match self.zero && !self.minus && magnitude.is_finite() {
            true => zeroes(self.width.saturating_sub(sign.len()), digits),
            false => digits.to_owned(),
        };
        Self { zero: false, ..self }.text(sink, &format!("{sign}{padded}"))
    }
}

fn zeroes(width: usize, digits: &str) -> String {
    format!("{}{digits}", "0".repeat(width.saturating_sub(digits.len())))
}

fn character(number: i64) -> char {
    u32::try_from(number).ok().and_then(char::from_u32).unwrap_or('\u{fffd}')
}

/// Converts Rust's scientific notation to Go's: `1e3` to `1e+03`.
fn scientific(rust: &str) -> String {
    let (mantissa, exponent) = rust.split_once('e').unwrap_or((rust, "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// Formats a number with at most `precision` significant digits, without trailing zeroes.
fn significant(number: f64, precision: usize) -> String {
    if !number.is_finite() || number == 0.0 {
        return print::float(number);
    }
    let precision = precision.max(1);
    let rust = format!("{number:.*e}", precision - 1);
    let (mantissa, exponent) = rust.split_once('e').unwrap_or((&rust, "0"));
    let exponent: i64 = exponent.parse().unwrap_or(0);
    let trimmed = if mantissa.contains('.') { mantissa.trim_end_matches('0').trim_end_matches('.') } else { mantissa };
    let precision = i64::try_from(precision).unwrap_or(i64::MAX);
    // If the number has fewer digits than the precision, and at least those of its integer part, Go compares the
    // exponent with the number of digits. The result is the same: the exponent is below both.
    if exponent < -4 || exponent >= precision {
        return scientific(&format!("{trimmed}e{exponent}"));
    }
    let decimals = usize::try_from(precision - 1 - exponent).unwrap_or(0);
    let plain = format!("{number:.decimals$}");
    if plain.contains('.') { plain.trim_end_matches('0').trim_end_matches('.').to_owned() } else { plain }
}
