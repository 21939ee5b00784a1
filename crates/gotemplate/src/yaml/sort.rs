//! The order of keys in go-yaml: letters follow all other characters, and digits are compared as numbers.
//!
//! The order is not transitive: `01#` precedes `0b`, which precedes `1-`, which precedes `01#`. The sorts of the
//! standard library may panic on such keys; this merge sort does not. Go's output for such keys differs from run to
//! run.

use std::cmp::Ordering;

/// Sorts entries by their keys.
pub(super) fn sorted<T>(mut entries: Vec<T>, key: &impl Fn(&T) -> &str) -> Vec<T> {
    if entries.len() < 2 {
        return entries;
    }
    let right = sorted(entries.split_off(entries.len() / 2), key).into_iter().peekable();
    let (mut left, mut right) = (sorted(entries, key).into_iter().peekable(), right);
    let mut merged = Vec::with_capacity(left.len() + right.len());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let from = if natural(key(a), key(b)).is_gt() { &mut right } else { &mut left };
        merged.extend(from.next());
    }
    merged.extend(left.chain(right));
    merged
}

/// Returns which of two keys comes first.
fn natural(left: &str, right: &str) -> Ordering {
    if left.is_ascii() && right.is_ascii() {
        return runs(left.as_bytes(), right.as_bytes(), |byte| char::from(*byte));
    }
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    runs(&left, &right, |next| *next)
}

fn runs<T>(left: &[T], right: &[T], char_of: impl Fn(&T) -> char) -> Ordering {
    let digit = |next: char| next.is_ascii_digit();
    for at in 0..left.len().min(right.len()) {
        let (a, b) = (char_of(&left[at]), char_of(&right[at]));
        if a == b {
            continue;
        }
        match (a.is_alphabetic(), b.is_alphabetic()) {
            (true, true) => return a.cmp(&b),
            (false, true) => return Ordering::Less,
            (true, false) => return Ordering::Greater,
            (false, false) => {}
        }
        // A zero after a nonzero digit of the same number is not a leading zero.
        let counts = (a == '0' || b == '0')
            && left[..at].iter().rev().map(&char_of).take_while(|next| digit(*next)).any(|next| next != '0');
        let number = |chars: &[T]| {
            let digits: Vec<char> = chars[at..].iter().map(&char_of).take_while(|next| digit(*next)).collect();
            let start = i64::from(counts);
            (
                digits.iter().fold(start, |sum, next| {
                    sum.wrapping_mul(10).wrapping_add(i64::from(u32::from(*next) - u32::from('0')))
                }),
                digits.len(),
            )
        };
        let (left_number, right_number) = (number(left), number(right));
        return left_number.cmp(&right_number).then(a.cmp(&b));
    }
    left.len().cmp(&right.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_whose_order_is_circular_are_all_kept() {
        for (a, b) in [("01#", "0b"), ("0b", "1-"), ("1-", "01#")] {
            assert_eq!(natural(a, b), Ordering::Less, "{a} {b}");
        }
        let keys: Vec<String> = (0..3000).map(|n| format!("{}{n}", ["01#", "0b", "1-"][n % 3])).collect();
        let sorted = sorted(keys.clone(), &|key: &String| key);
        assert_ne!(sorted, keys);
        let set = |keys: Vec<String>| keys.into_iter().collect::<std::collections::BTreeSet<_>>();
        assert_eq!(set(sorted), set(keys));
    }
}
