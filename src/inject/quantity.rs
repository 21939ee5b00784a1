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

#[cfg(test)]
mod tests {
    use super::*;

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
