//! The types that YAML 1.1 gives to plain scalars.

/// Whether a plain scalar is read back as a string, and not as a number, boolean, null or time.
pub(super) fn is_text(text: &str) -> bool {
    let Some(first) = text.bytes().next() else { return false };
    match first {
        b'0'..=b'9' | b'+' | b'-' => !is_named(text) && !is_number(text) && !is_time(text) && !is_sexagesimal(text),
        b'.' => !is_named(text) && separated(text).is_none_or(|digits| digits.parse::<f64>().is_err()),
        b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~' => !is_named(text),
        _ => true,
    }
}

/// Removes underscores; returns `None` if one of them does not stand between digits.
fn separated(text: &str) -> Option<String> {
    let digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let bytes = text.as_bytes();
    let between = |at: usize| at > 0 && digit(bytes.get(at - 1)) && digit(bytes.get(at + 1));
    text.match_indices('_').all(|(at, _)| between(at)).then(|| text.replace('_', ""))
}

fn is_named(text: &str) -> bool {
    // Whether the text is the word in lower case, with a capital first letter, or in capitals.
    let cased = |word: &str| {
        text.eq_ignore_ascii_case(word)
            && (text[1..] == word[1..] || !text.bytes().any(|byte| byte.is_ascii_lowercase()))
    };
    let infinite = text.strip_prefix(['+', '-']).unwrap_or(text);
    text.len() <= 5
        && (["y", "yes", "on", "n", "no", "off", "true", "false", "null"].into_iter().any(cased)
            || matches!(text, "~" | ".nan" | ".NaN" | ".NAN")
            || matches!(infinite, ".inf" | ".Inf" | ".INF"))
}

fn is_number(text: &str) -> bool {
    let plain = text.replace('_', "");
    let digits = plain.strip_prefix(['+', '-']).unwrap_or(&plain);
    is_integer(digits, plain.starts_with('-')) || is_float(digits)
}

/// Whether the digits are an integer that fits into 64 bits.
fn is_integer(digits: &str, negative: bool) -> bool {
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        _ if lower.len() > 1 && lower.starts_with('0') => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    let unsigned = digits
        .starts_with(|first: char| first.is_ascii_alphanumeric())
        .then(|| u64::from_str_radix(digits, radix).ok())
        .flatten();
    unsigned.is_some_and(|magnitude| !negative || magnitude <= 1 << 63)
}

fn is_float(text: &str) -> bool {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let empty = exponent.is_empty() || whole.is_empty() && fraction.is_empty();
    let shaped = !empty && digits(whole) && digits(fraction) && digits(exponent);
    // A number beyond the range of a float is a string.
    shaped && text.parse::<f64>().is_ok_and(f64::is_finite)
}

/// Whether a scalar looks like `12:30:45`, which YAML 1.1 reads as a number of base 60.
fn is_sexagesimal(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (unsigned, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut parts = unsigned.split(':');
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let first = parts.next().is_some_and(|part| part.starts_with(|first: char| first.is_ascii_digit()) && digits(part));
    let sixty = |part: &str| match part.as_bytes() {
        [unit] => unit.is_ascii_digit(),
        [tens, unit] => matches!(tens, b'0'..=b'5') && unit.is_ascii_digit(),
        _ => false,
    };
    first && unsigned.contains(':') && parts.all(sixty) && digits(fraction)
}

/// Whether a scalar is a date, alone or with a time of day.
fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.iter().take_while(|byte| byte.is_ascii_digit()).count() != 4 || bytes.get(4) != Some(&b'-') {
        return false;
    }
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let zoned = !text.contains(' ');
    is_date(date) && time.is_none_or(|time| is_time_of_day(time, zoned))
}

fn is_date(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let year = parts.next().and_then(|year| year.parse().ok());
    let (month, day) = (parts.next().and_then(short), parts.next().and_then(short));
    let date = year.zip(month).zip(day);
    date.is_some_and(|((year, month), day)| jiff::civil::Date::new(year, month, day).is_ok())
}

/// Parses a number of one or two digits.
fn short(digits: &str) -> Option<i8> {
    let fits = matches!(digits.len(), 1 | 2) && digits.bytes().all(|byte| byte.is_ascii_digit());
    fits.then(|| digits.parse().ok()).flatten()
}

fn is_time_of_day(text: &str, zoned: bool) -> bool {
    let clock = match (zoned, text.find(['Z', '+', '-'])) {
        (false, None) => text,
        (true, Some(at)) if is_zone(&text[at..]) => &text[..at],
        _ => return false,
    };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let parts: Option<Vec<i8>> = clock.split(':').map(short).collect();
    let in_range =
        matches!(parts.as_deref(), Some([hour, minute, second]) if *hour < 24 && *minute < 60 && *second < 60);
    in_range && !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_zone(text: &str) -> bool {
    match text.as_bytes() {
        b"Z" => true,
        [b'+' | b'-', h, i, b':', m, n] => [h, i, m, n].into_iter().all(u8::is_ascii_digit),
        _ => false,
    }
}
