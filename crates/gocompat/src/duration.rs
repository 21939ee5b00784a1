//! Durations in Go's syntax (`time.ParseDuration`).

use std::time::Duration;

/// Parses a sum of numbers with units, such as `300ms`, `1.5h` or `1m30s`, or `0`.
///
/// # Errors
/// The string has another form, or the duration is negative or too large; the error states the expected form.
pub fn parse(text: &str) -> Result<Duration, &'static str> {
    const FORM: &str = "not a duration such as 300ms, 5s or 1m30s";
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut total) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let unit = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(FORM)?;
        let (number, tail) = rest.split_at(unit);
        let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let seconds = number.parse::<f64>().map_err(|_| FORM)? * seconds(unit).ok_or(FORM)?;
        let part = Duration::try_from_secs_f64(seconds).map_err(|_| FORM)?;
        total = total.checked_add(part).ok_or(FORM)?;
        rest = tail;
    }
    if text.is_empty() { Err(FORM) } else { Ok(total) }
}

fn seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "µs" | "μs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_are_added_up() {
        for (text, millis) in [
            ("5s", 5000),
            ("300ms", 300),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
            ("0", 0),
            (".5s", 500),
            ("1000µs", 1),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn invalid_and_negative_durations_are_refused() {
        for text in ["", "5", "s", "-1s", "1d", "1s ", "1..5s", "99999999999999999999h"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
