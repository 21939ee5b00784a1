//! The order of keys in go-yaml: letters behind all else, digits as numbers.

use std::cmp::Ordering;

/// Which of two keys comes first.
pub(super) fn natural(left: &str, right: &str) -> Ordering {
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
        // Behind a digit that counts, zeroes count too.
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
