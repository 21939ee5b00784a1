//! Literals of Go: numbers, characters and strings.
//!
//! The parser calls this module for the literals of a template.

/// A number with the type that Go gives an untyped constant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    /// An integer.
    Int(i64),
    /// A number with a point or an exponent.
    Float(f64),
    /// A number that Go's parser accepts and for which this crate has no type: a complex number, or an integer from 2^63 to 2^64 - 1.
    Unsupported,
}

/// Parses a number in Go's syntax.
pub(super) fn number(text: &str) -> Option<Number> {
    if let Some(parts) = text.strip_suffix('i') {
        return complex(parts);
    }
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if !well_separated(digits) {
        return None;
    }
    let plain: String = digits.chars().filter(|next| *next != '_').collect();
    let lower = plain.to_ascii_lowercase();
    let magnitude = match lower.get(..2) {
        Some("0x") if lower.contains('p') => return hexadecimal(&lower[2..], negative),
        Some("0x") => i128::from_str_radix(digits_only(&lower[2..])?, 16).ok()?,
        Some("0o") => i128::from_str_radix(digits_only(&lower[2..])?, 8).ok()?,
        Some("0b") => i128::from_str_radix(digits_only(&lower[2..])?, 2).ok()?,
        _ if lower.contains(['.', 'e']) => return float(&lower, negative),
        _ if lower.len() > 1 && lower.starts_with('0') => i128::from_str_radix(digits_only(&lower)?, 8).ok()?,
        _ => digits_only(&lower)?.parse().ok()?,
    };
    match i64::try_from(if negative { -magnitude } else { magnitude }) {
        Ok(number) => Some(Number::Int(number)),
        Err(_) => (!negative && u64::try_from(magnitude).is_ok()).then_some(Number::Unsupported),
    }
}

/// Parses a complex number without its `i`: the imaginary part alone, or after the real part.
fn complex(parts: &str) -> Option<Number> {
    let bytes = parts.as_bytes();
    let is_sign = |at: usize| matches!(bytes[at], b'+' | b'-') && !matches!(bytes[at - 1], b'e' | b'E' | b'p' | b'P');
    let split = (1..bytes.len()).rev().find(|at| is_sign(*at)).unwrap_or(0);
    let is_number = |text: &str| !text.ends_with('i') && number(text).is_some();
    let is_complex = (split == 0 || is_number(&parts[..split])) && is_number(&parts[split..]);
    is_complex.then_some(Number::Unsupported)
}

/// Parses a hexadecimal float in lower case, without its sign and `0x`: digits with or without a point, `p`, and the
/// exponent of two.
fn hexadecimal(text: &str, negative: bool) -> Option<Number> {
    let (digits, exponent) = text.split_once('p')?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let exponent: i32 = exponent.parse().ok()?;
    let places = i32::try_from(fraction.len()).ok()?;
    let mut number = 0.0;
    for digit in whole.chars().chain(fraction.chars()) {
        number = number * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let number = number * 2_f64.powi(exponent.checked_sub(places.checked_mul(4)?)?);
    let is_valid = !(whole.is_empty() && fraction.is_empty()) && number.is_finite();
    is_valid.then_some(Number::Float(if negative { -number } else { number }))
}

/// Returns the text if it starts with a digit: Rust's parser would also accept a sign here, Go's does not.
fn digits_only(text: &str) -> Option<&str> {
    text.starts_with(|first: char| first.is_ascii_hexdigit()).then_some(text)
}

fn float(text: &str, negative: bool) -> Option<Number> {
    let number: f64 =
        text.starts_with(|first: char| first.is_ascii_digit() || first == '.').then(|| text.parse().ok())??;
    number.is_finite().then_some(Number::Float(if negative { -number } else { number }))
}

/// Whether each underscore stands between two digits, or between a prefix such as `0x` and a digit.
pub(super) fn well_separated(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits = |byte: &u8| byte.is_ascii_alphanumeric();
    bytes.iter().enumerate().filter(|(_, byte)| **byte == b'_').all(|(at, _)| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        before.is_some_and(digits) && bytes.get(at + 1).is_some_and(digits)
    })
}

/// Parses a character constant, with its quotes, and returns the character's code.
pub(super) fn character(quoted: &str) -> Option<i64> {
    let inner = quoted.strip_prefix('\'')?.strip_suffix('\'')?;
    let mut bytes = Vec::new();
    let (code, rest) = unescape(inner, '\'', &mut bytes)?;
    rest.is_empty().then_some(i64::from(code))
}

/// Parses a string, with its quotes. Bytes that are not UTF-8 become U+FFFD.
pub(super) fn string(quoted: &str) -> Option<String> {
    let mut rest = quoted.strip_prefix('"')?.strip_suffix('"')?;
    let mut bytes = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        rest = unescape(rest, '"', &mut bytes)?.1;
    }
    Some(String::from_utf8(bytes).unwrap_or_else(|bytes| String::from_utf8_lossy(bytes.as_bytes()).into_owned()))
}

/// Reads one character, which may be escaped; appends it to `bytes` and returns its code and the rest.
fn unescape<'t>(text: &'t str, quote: char, bytes: &mut Vec<u8>) -> Option<(u32, &'t str)> {
    let mut push = |code: char| {
        bytes.extend_from_slice(code.encode_utf8(&mut [0; 4]).as_bytes());
        u32::from(code)
    };
    let mut chars = text.chars();
    let first = chars.next()?;
    if first != '\\' {
        return (first != quote).then(|| (push(first), chars.as_str()));
    }
    let escape = chars.next()?;
    let rest = chars.as_str();
    let simple = match escape {
        'a' => '\x07',
        'b' => '\x08',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        '\\' => '\\',
        '\'' | '"' if escape == quote => escape,
        'u' => return number_escape(rest, 4, 16).and_then(|(code, rest)| Some((push(char::from_u32(code)?), rest))),
        'U' => return number_escape(rest, 8, 16).and_then(|(code, rest)| Some((push(char::from_u32(code)?), rest))),
        'x' => return byte_escape(rest, 2, 16, bytes),
        '0'..='7' => return byte_escape(&text[1..], 3, 8, bytes),
        _ => return None,
    };
    Some((push(simple), rest))
}

fn byte_escape<'t>(text: &'t str, length: usize, radix: u32, bytes: &mut Vec<u8>) -> Option<(u32, &'t str)> {
    let (code, rest) = number_escape(text, length, radix)?;
    bytes.push(u8::try_from(code).ok()?);
    Some((code, rest))
}

fn number_escape(text: &str, length: usize, radix: u32) -> Option<(u32, &str)> {
    let digits = text.get(..length).filter(|digits| digits.chars().all(|digit| digit.is_digit(radix)))?;
    Some((u32::from_str_radix(digits, radix).ok()?, &text[length..]))
}
