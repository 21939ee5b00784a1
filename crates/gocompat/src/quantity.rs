//! Parses Kubernetes' resource quantities and writes them in the API server's canonical form.
//!
//! A quantity that is canonical already stays as the user wrote it. A number above 128 bits, which no node has, is
//! treated as malformed, so that the time for a quantity depends only on its length.

use std::cmp::Ordering;

use serde_json::Value;

/// The unit that a suffix denotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// `n` to `E`: a power of ten.
    Decimal(i32),
    /// `e3`: a power of ten; the canonical form keeps the exponent.
    Exponent(i32),
    /// `Ki` to `Ei`: a power of two.
    Binary(u32),
}

const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// The exponent of the smallest power of ten; finer values are rounded up.
const NANO: i32 = -9;
/// The maximum absolute value of the exponent in a suffix such as `e3`.
const LARGEST_EXPONENT: i32 = 30;
/// The largest quantity, in units of 10^-9. Kubernetes reduces larger ones to it.
const LARGEST: u128 = i64::MAX.unsigned_abs() as u128 * 1_000_000_000;
/// The number of digits up to which Kubernetes parses without big integers. It always rewrites longer numbers.
const FAST_DIGITS: usize = 18;

/// The number before the suffix.
struct Number<'a> {
    negative: bool,
    /// The digits before the point, without leading zeros.
    whole: &'a str,
    fraction: &'a str,
}

/// Returns `text` in canonical form, or `None` if it is not a quantity.
pub fn canonical(text: &str) -> Option<String> {
    let (number, suffix) = split(text)?;
    let unit = unit(suffix)?;
    if number.is_canonical(unit) {
        return Some(text.to_owned());
    }
    let magnitude = number.digits()?;
    let written = match unit {
        Unit::Decimal(exponent) => decimal(magnitude, exponent - number.scale()?, false),
        Unit::Exponent(exponent) => decimal(magnitude, exponent - number.scale()?, true),
        Unit::Binary(power) => binary(magnitude, number.scale()?, power),
    }?;
    Some(if number.negative && written != "0" { format!("-{written}") } else { written })
}

/// Whether `text` is a quantity: a number with an optional SI, binary or exponent suffix.
pub fn is_quantity(text: &str) -> bool {
    canonical(text).is_some()
}

/// Returns the string form of a quantity in a document, where it may also be a number.
pub fn text(quantity: &Value) -> String {
    quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned)
}

/// Compares two quantities. Returns `None` if [`nanos`] returns `None` for one of them.
pub fn compare(one: &str, other: &str) -> Option<Ordering> {
    Some(nanos(one)?.cmp(&nanos(other)?))
}

/// Whether `text` is a quantity below 0.
pub fn is_negative(text: &str) -> bool {
    canonical(text).is_some_and(|text| text.starts_with('-') && text.contains(|c: char| ('1'..='9').contains(&c)))
}

/// Returns a quantity in units of 10^-3, rounded up as the API server rounds the resources of containers and pods
/// (`SetDefaults_ResourceList`); `None` if [`nanos`] returns `None`.
pub fn milli(text: &str) -> Option<u128> {
    nanos(text).map(milli_of)
}

/// Converts a number of units of 10^-9 to units of 10^-3, rounded up.
pub fn milli_of(nanos: u128) -> u128 {
    nanos.div_ceil(1_000_000)
}

/// Returns a quantity in units of 10^-9, rounded up; `None` if it is not a quantity, is negative, or overflows 128
/// bits.
pub fn nanos(text: &str) -> Option<u128> {
    let (number, suffix) = split(text)?;
    let (magnitude, scale) = (number.digits().filter(|_| !number.negative)?, number.scale()?);
    let (magnitude, exponent) = match unit(suffix)? {
        Unit::Decimal(exponent) | Unit::Exponent(exponent) => (magnitude, exponent),
        Unit::Binary(power) => (magnitude.checked_mul(1 << power)?, 0),
    };
    let shift = exponent - scale - NANO;
    let factor = 10_u128.checked_pow(shift.unsigned_abs())?;
    let nanos = if shift < 0 { magnitude.div_ceil(factor) } else { magnitude.checked_mul(factor)? };
    Some(nanos.min(LARGEST))
}

fn split(text: &str) -> Option<(Number<'_>, &str)> {
    if text.is_empty() {
        return None;
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, rest) = digits(unsigned);
    let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);
    Some((Number { negative: text.starts_with('-'), whole: whole.trim_start_matches('0'), fraction }, suffix))
}

/// Splits off the leading digits.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn unit(suffix: &str) -> Option<Unit> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some(Unit::Decimal(*exponent));
    }
    if let Some((_, power)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Some(Unit::Binary(*power));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    (exponent.abs() <= LARGEST_EXPONENT).then_some(Unit::Exponent(exponent))
}

impl Number<'_> {
    /// Returns the digits before and after the point as one number; `None` above 128 bits.
    fn digits(&self) -> Option<u128> {
        let both = format!("0{}{}", self.whole, self.fraction);
        both.parse().ok()
    }

    /// Returns the number of digits after the point.
    fn scale(&self) -> Option<i32> {
        i32::try_from(self.fraction.len()).ok()
    }

    /// Whether Kubernetes keeps the quantity as the user wrote it.
    fn is_canonical(&self, unit: Unit) -> bool {
        let length = self.whole.len().max(1) + self.fraction.len();
        match unit {
            Unit::Decimal(exponent) | Unit::Exponent(exponent) => {
                let Some(scale) = self.scale().map(|scale| exponent - scale) else { return false };
                let thousands = format!("{}{}", self.whole, self.fraction).ends_with("000");
                length <= FAST_DIGITS && scale >= NANO && scale % 3 == 0 && !thousands && !self.whole.is_empty()
            }
            Unit::Binary(power) => {
                // With at most 14 decimal digits, including those of the unit, the product of number and unit fits 64
                // bits. A number that is not divisible by 8 is not divisible by 1024 either, so that no larger unit
                // fits.
                let spare_digits = 14 - i64::from(power * 3 / 10) - i64::try_from(length).unwrap_or(i64::MAX);
                spare_digits >= 0 && self.fraction.is_empty() && self.digits().is_some_and(|digits| digits & 7 != 0)
            }
        }
    }
}

/// Writes `magnitude` × 10^`exponent` with an exponent that is a multiple of three.
fn decimal(mut magnitude: u128, mut exponent: i32, keep_exponent: bool) -> Option<String> {
    while exponent < NANO && magnitude > 0 {
        magnitude = magnitude.div_ceil(10);
        exponent += 1;
    }
    if magnitude == 0 {
        return Some("0".to_owned());
    }
    while magnitude.is_multiple_of(10) {
        magnitude /= 10;
        exponent += 1;
    }
    let largest = if keep_exponent { i32::MAX } else { 18 };
    while exponent % 3 != 0 || exponent > largest {
        magnitude = magnitude.checked_mul(10)?;
        exponent -= 1;
    }
    let suffix = match keep_exponent {
        true if exponent == 0 => String::new(),
        true => format!("e{exponent}"),
        false => DECIMAL.iter().find(|(_, power)| *power == exponent)?.0.to_owned(),
    };
    Some(format!("{magnitude}{suffix}"))
}

/// Formats (`magnitude` × 2^`power`) / 10^`scale` in canonical form; returns none if that exceeds 128 bits.
fn binary(magnitude: u128, scale: i32, power: u32) -> Option<String> {
    let largest = LARGEST / 1_000_000_000;
    let scaled = magnitude.checked_mul(1 << power)?;
    let divisor = 10_u128.checked_pow(u32::try_from(scale).ok()?)?;
    let (whole, exact) = (scaled / divisor, scaled.is_multiple_of(divisor));
    if whole >= largest {
        return Some(largest.to_string());
    }
    if !exact || whole < 1024 {
        return decimal(scaled, -scale, false);
    }
    let (mut whole, mut steps) = (whole, 0);
    while whole.is_multiple_of(1024) {
        whole /= 1024;
        steps += 1;
    }
    let suffix = if steps == 0 { "" } else { BINARY.get(steps - 1)?.0 };
    Some(format!("{whole}{suffix}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_are_written_as_the_api_server_writes_them() {
        for same in "1 1. 01 001 5. +1 -1 1e3 1e0 1e-3 1500m 1n 1Gi 1000Ki 1048576 1k 9223372036854775808 1e18 0 1E 5Ei"
            .split(' ')
        {
            assert_eq!(canonical(same).as_deref(), Some(same));
        }
        for (given, written) in [
            (".5", "500m"),
            ("0.5", "500m"),
            ("0.50", "500m"),
            ("1.0", "1"),
            ("1.50", "1500m"),
            ("10E-1", "1"),
            ("1.5e3", "1500"),
            ("1000", "1k"),
            ("1000m", "1"),
            ("0.0001", "100u"),
            ("0.00000000001", "1n"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.001Mi", "1048576m"),
            ("1000k", "1M"),
            ("10Ei", "9223372036854775807"),
            ("1e19", "10e18"),
            ("0m", "0"),
            ("00", "0"),
            ("-0", "0"),
            ("Mi", "0"),
            ("-1000", "-1k"),
            ("0.5Ki", "512"),
            ("1e-12", "1e-9"),
            ("1024Ki", "1Mi"),
            ("1000E", "1000E"),
            ("2000m", "2"),
            ("1500", "1500"),
            ("0.1", "100m"),
            ("2E", "2E"),
            ("-2", "-2"),
        ] {
            assert_eq!(canonical(given).as_deref(), Some(written), "{given}");
        }
        for bad in [
            "", "1e", " 1", "1 ", "1gi", "1GiB", "1K", "1,5", "--1", "0x10", "1.2.3", "1e3Mi", "1e99", "1e+-3", "ten",
            "1 Gi", "1Gib", "1\n", "1: {",
        ] {
            assert_eq!(canonical(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn amounts_of_resources_are_rounded_up_to_thousandths() {
        for (text, amount) in [("1", 1000), ("1m", 1), ("1500u", 2), ("1n", 1), ("0", 0), ("1Ki", 1_024_000)] {
            assert_eq!(milli(text), Some(amount), "{text}");
        }
        assert_eq!(milli("-1"), None);
    }

    #[test]
    fn quantities_are_compared_as_numbers() {
        use Ordering::{Equal, Greater, Less};
        for (one, other, order) in [
            ("1", "1000m", Equal),
            ("1Gi", "1024Mi", Equal),
            ("1G", "1Gi", Less),
            ("2", "1500m", Greater),
            ("1e3", "1k", Equal),
            (".5", "0.50", Equal),
            // Both are read as the largest quantity.
            ("16Ei", "16E", Equal),
            ("5Ei", "5E", Greater),
            ("1n", "0", Greater),
            ("0.1n", "0", Greater),
        ] {
            assert_eq!(compare(one, other), Some(order), "{one} {other}");
            assert_eq!(compare(other, one), Some(order.reverse()), "{other} {one}");
        }
        for (one, other) in [("x", "1"), ("1", ""), ("-1", "1"), ("1e30", "1")] {
            assert_eq!(compare(one, other), None, "{one} {other}");
        }
    }

    proptest! {
        #[test]
        fn a_quantity_in_canonical_form_stays(text in "[+-]?[0-9]{0,24}(\\.[0-9]{0,14})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e[0-9]{1,2}|E-[0-9]|)") {
            if let Some(canonical) = canonical(&text) {
                prop_assert_eq!(super::canonical(&canonical), Some(canonical.clone()), "{}", text);
            }
        }

        #[test]
        fn no_text_panics(text in any::<String>()) {
            let _ = canonical(&text);
        }
    }
}
