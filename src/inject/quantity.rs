//! Kubernetes' resource quantities, as far as injection must know a right one from a wrong one.

/// Whether `text` is a quantity: a number with an optional SI, binary or exponent suffix.
pub(super) fn is_quantity(text: &str) -> bool {
    let number = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
    let (number, suffix) = number.split_at(digits);
    let numeric = number.contains(|c: char| c.is_ascii_digit()) && number.matches('.').count() <= 1;
    numeric && (is_unit(suffix) || is_exponent(suffix))
}

fn is_unit(suffix: &str) -> bool {
    matches!(suffix, "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei")
}

fn is_exponent(suffix: &str) -> bool {
    suffix.strip_prefix(['e', 'E']).is_some_and(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
    })
}

/// The spelling that Kubernetes gives a quantity: the largest suffix of the same family that leaves a whole number.
/// None where it is no quantity, has an exponent, or is too fine or too large to be spelled here.
pub(super) fn canonical(text: &str) -> Option<String> {
    const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let (family, base): (&[&str], u128) = if suffix.ends_with('i') { (&BINARY, 1024) } else { (&DECIMAL, 1000) };
    let mut at = family.iter().position(|unit| *unit == suffix)?;
    let (whole, mut fraction) = number.split_once('.').unwrap_or((number, ""));
    fraction = fraction.trim_end_matches('0');
    if base == 1024 && !fraction.is_empty() {
        return None;
    }
    let mut value: u128 = format!("0{whole}").parse().ok()?;
    while !fraction.is_empty() {
        let (next, rest) = fraction.split_at(fraction.len().min(3));
        value = value.checked_mul(base)?.checked_add(format!("{next:0<3}").parse().ok()?)?;
        (fraction, at) = (rest, at.checked_sub(1)?);
    }
    while value != 0 && value.is_multiple_of(base) && at + 1 < family.len() {
        (value, at) = (value / base, at + 1);
    }
    Some(if value == 0 { "0".to_owned() } else { format!("{value}{}", family[at]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_are_canonical() {
        for (text, spelled) in [
            ("2000m", "2"),
            ("1024Mi", "1Gi"),
            ("0.1", "100m"),
            ("1.50", "1500m"),
            ("1500", "1500"),
            ("1000Ki", "1000Ki"),
            ("1000", "1k"),
            ("0", "0"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(spelled), "{text}");
        }
        for other in ["1e3", "1.5Gi", "x"] {
            assert_eq!(canonical(other), None, "{other}");
        }
    }

    #[test]
    fn quantities_are_told_from_other_text() {
        for right in ["1", "100m", "1.5Gi", "-2", "1e3", "2E", ".5"] {
            assert!(is_quantity(right), "{right}");
        }
        for wrong in ["", "m", "1 Gi", "1Gib", "1e", "1.2.3", "1\n", "1: {"] {
            assert!(!is_quantity(wrong), "{wrong}");
        }
    }
}
