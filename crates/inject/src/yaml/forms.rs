//! Rewrites what the library refuses, or reads differently from Go's reader, to text that both read as Go's reader
//! does.
//!
//! `library` calls this module before it reads a text, and again if the text is refused.

use std::borrow::Cow;
use std::ops::Range;

use serde_saphyr::granit_parser::{ErrorKind, Event, Parser, ScalarStyle};

use super::LIMIT;

/// The words that the library recognizes in any case.
const WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
/// The special floats that the library recognizes in any case, with the spellings that Go recognizes.
const NO_NUMBERS: [(&str, &[&str]); 2] = [(".nan", &[".nan", ".NaN", ".NAN"]), (".inf", &[".inf", ".Inf", ".INF"])];
/// The maximum number of quoted scalars whose lines are indented; the text is parsed once for each.
const PASSES: usize = 256;
/// The maximum number of bytes that are parsed for these scalars in total, unless one text is longer.
const PARSED: usize = 16 << 20;

/// A scalar has the tag of another type.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{scalar:?} is no {tag}, which its tag says")]
pub struct Tagged {
    scalar: String,
    tag: String,
}

/// Returns the text with its plain scalars as Go reads them: a word such as `tRUE`, which is not lower-case, upper-case
/// or capitalized, is quoted, and underscores are removed from numbers.
///
/// # Errors
/// A word that Go reads as a string has the tag `!!bool` or `!!null`.
pub(super) fn of_scalars(text: &str) -> Result<Cow<'_, str>, Tagged> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
    if !text.split(|c| !is_part(c)).any(|part| replacement(part).is_some()) {
        return Ok(text.into());
    }
    let (mut written, mut done) = (String::new(), 0);
    for (event, span) in Parser::new_from_str(text).map_while(Result::ok) {
        let Event::Scalar(value, ScalarStyle::Plain, _, tag) = &event else { continue };
        let Some(new) = (match tag {
            None => replacement(value),
            Some(tag) => tagged(tag.core_suffix(), value)?,
        }) else {
            continue;
        };
        let Some(at) = span.start.byte_offset() else { continue };
        let end = at + value.len();
        if text.get(at..end) == Some(value) && at >= done {
            written.push_str(&text[done..at]);
            written.push_str(&new);
            done = end;
        }
    }
    written.push_str(&text[done..]);
    Ok(written.into())
}

/// Returns what replaces a scalar with a tag of the core schema, as [`replacement`] does.
///
/// # Errors
/// The library reads the scalar as a value of the tag's type, and Go as a string.
fn tagged(tag: Option<&str>, scalar: &str) -> Result<Option<String>, Tagged> {
    let Some(new) = replacement(scalar) else { return Ok(None) };
    match tag {
        Some("int" | "float") => Ok(Some(new).filter(|new| !new.starts_with('\''))),
        Some(tag @ ("bool" | "null")) => Err(Tagged { scalar: scalar.to_owned(), tag: tag.to_owned() }),
        _ => Ok(None),
    }
}

/// Returns the text that replaces a plain scalar so that the library reads it as Go does; `None` if the scalar can
/// stay.
fn replacement(scalar: &str) -> Option<String> {
    let unsigned = scalar.strip_prefix(['+', '-']).unwrap_or(scalar);
    let is_word = WORDS.iter().any(|word| word.eq_ignore_ascii_case(scalar));
    let no_number = NO_NUMBERS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unsigned));
    // Go accepts a sign before infinity, but not before NaN.
    let is_other =
        |(name, forms): &(&str, &[&str])| !forms.contains(&unsigned) || *name == ".nan" && unsigned != scalar;
    if is_word && !is_form(scalar) || no_number.is_some_and(is_other) {
        return Some(format!("'{scalar}'"));
    }
    let plain = scalar.replace('_', "");
    let is_signed = unsigned.len() < scalar.len();
    let may_be = is_signed || unsigned.starts_with(|c: char| c.is_ascii_digit()) || is_separated(scalar);
    let is_digit =
        plain.strip_prefix(['+', '-']).unwrap_or(&plain).starts_with(|c: char| c.is_ascii_digit() || c == '.');
    (plain != scalar && may_be && is_digit && is_number(&plain)).then_some(plain)
}

/// Whether each underscore of a scalar is between two digits.
fn is_separated(scalar: &str) -> bool {
    let is_digit = |part: Option<u8>| part.is_some_and(|byte| byte.is_ascii_digit());
    let mut pairs = scalar.split('_').zip(scalar.split('_').skip(1));
    pairs.all(|(before, after)| is_digit(before.bytes().last()) && is_digit(after.bytes().next()))
}

/// Whether a word is lower-case, upper-case or capitalized.
fn is_form(word: &str) -> bool {
    let rest = &word[1..];
    rest.bytes().all(|b| b.is_ascii_lowercase()) || word.bytes().all(|b| b.is_ascii_uppercase())
}

/// Whether Go reads a scalar without underscores as a number.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let radix = match unsigned.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0x") => 16,
        Some("0o") => 8,
        Some("0b") => 2,
        _ => {
            let is_decimal = unsigned.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
            return is_decimal && unsigned.parse::<f64>().is_ok_and(f64::is_finite);
        }
    };
    let digits = &unsigned[2..];
    !digits.starts_with('+') && u64::from_str_radix(digits, radix).is_ok()
}

/// Returns the text with the continuation lines of quoted scalars indented, because Go accepts any indentation there
/// and the library does not. White space at the start of such a line has no meaning. Returns `None` if there is nothing
/// to indent, or the library refuses the text for another reason.
pub(super) fn indented(text: &str) -> Option<String> {
    let mut indented: Option<String> = None;
    for _ in 0..(PARSED / text.len().max(1)).clamp(1, PASSES) {
        let text = indented.as_deref().unwrap_or(text);
        let Some((from, line)) = refused(text)? else { return indented };
        let scalar = quoted_on(text, from, line).filter(|scalar| !has_marker(&text[scalar.clone()]))?;
        indented = Some(with_spaces(text, &scalar)).filter(|text| text.len() <= LIMIT);
        indented.as_ref()?;
    }
    None
}

/// Finds a quoted scalar for whose indentation the library refuses the text: returns the end of what was parsed before
/// the scalar, and the number of the refused line, from 1. Returns `Some(None)` if the library accepts the text, and
/// `None` if it refuses the text for another reason.
fn refused(text: &str) -> Option<Option<(usize, usize)>> {
    let mut read = 0;
    for event in Parser::new_from_str(text) {
        match event {
            Ok((_, span)) => read = span.end.byte_offset().unwrap_or(read).max(read),
            Err(error) if is_of_indentation(error.kind()) => return Some(Some((read, error.marker().line()))),
            Err(_) => return None,
        }
    }
    Some(None)
}

fn is_of_indentation(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::InvalidQuotedScalarIndent | ErrorKind::TabInIndentation)
}

/// Returns the first quoted scalar after `from` that begins before this line, from 1, and ends on it or later.
fn quoted_on(text: &str, from: usize, line: usize) -> Option<Range<usize>> {
    let mut number = 1 + text.get(..from)?.matches('\n').count();
    let (mut at, mut before) = (from, b'\n');
    let bytes = text.as_bytes();
    while at < bytes.len() && number < line {
        let byte = bytes[at];
        let opens = before.is_ascii_whitespace() || b"[{,:".contains(&before);
        let end = match byte {
            b'#' if before.is_ascii_whitespace() => at + text[at..].find('\n').unwrap_or(text.len() - at),
            b'"' | b'\'' if opens => closed(bytes, at)?,
            _ => at + 1,
        };
        let breaks = text.get(at..end)?.matches('\n').count();
        if b"\"'".contains(&byte) && number + breaks >= line {
            return Some(at..end);
        }
        number += breaks;
        before = bytes[end - 1];
        at = end;
    }
    None
}

/// Whether a continuation line of a scalar is a document marker, which ends the document within the scalar.
fn has_marker(scalar: &str) -> bool {
    let mut lines = scalar.split('\n').skip(1);
    lines.any(|line| {
        ["---", "..."].iter().any(|marker| {
            line.strip_prefix(marker).is_some_and(|rest| rest.trim_start().len() < rest.len() || rest.is_empty())
        })
    })
}

/// Returns the end of the quoted scalar that begins at `at`.
fn closed(bytes: &[u8], at: usize) -> Option<usize> {
    let quote = bytes[at];
    let mut next = at + 1;
    loop {
        match *bytes.get(next)? {
            b'\\' if quote == b'"' => next += 2,
            byte if byte == quote && quote == b'\'' && bytes.get(next + 1) == Some(&quote) => next += 2,
            byte if byte == quote => return Some(next + 1),
            _ => next += 1,
        }
    }
}

/// Indents the continuation lines of a scalar to one column after the one in which the scalar begins.
fn with_spaces(text: &str, scalar: &Range<usize>) -> String {
    let column = text[..scalar.start].rsplit('\n').next().unwrap_or_default().chars().count();
    let mut lines = text[scalar.clone()].split_inclusive('\n');
    let mut written = text[..scalar.start].to_owned();
    written.push_str(lines.next().unwrap_or_default());
    for line in lines {
        let content = line.trim_start_matches([' ', '\t']);
        if !content.trim().is_empty() {
            written.extend(std::iter::repeat_n(' ', column + 1));
        }
        written.push_str(content);
    }
    written.push_str(&text[scalar.end..]);
    written
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::yaml;

    /// Reads a text with all three functions, which must agree; `None` if they refuse it.
    fn of(text: &str) -> Option<Value> {
        let all = [
            yaml::value(text).ok(),
            yaml::read::<Value>(text).ok(),
            yaml::value_within(text, &mut gotemplate::Budget::default()).ok(),
        ];
        assert!(all.iter().all(|value| *value == all[0]), "{text:?}: {all:?}");
        all[0].clone()
    }

    #[test]
    fn a_scalar_has_the_value_that_go_reads() {
        // The expected values are from sigs.k8s.io/yaml 1.4.
        let mut wrong = Vec::new();
        for (scalar, value) in [
            ("1_", json!(1)),
            ("0x1_", json!(1)),
            ("1__0", json!(10)),
            ("1_0", json!(10)),
            ("0x_1", json!(1)),
            ("0b1_", json!(1)),
            ("0o7_", json!(7)),
            ("0_7", json!(7)),
            ("1_.5", json!(1.5)),
            ("1._5", json!(1.5)),
            ("-1_", json!(-1)),
            ("+1_", json!(1)),
            ("0X1F", json!(31)),
            ("09", json!(9.0)),
            ("-0x1", json!(-1)),
            ("1_000", json!(1000)),
            ("_1", json!("_1")),
            ("1_a", json!("1_a")),
            ("0x", json!("0x")),
            ("1_0e999", json!("1_0e999")),
            ("nULL", json!("nULL")),
            ("nulL", json!("nulL")),
            ("oFF", json!("oFF")),
            ("oN", json!("oN")),
            ("yES", json!("yES")),
            ("tRUE", json!("tRUE")),
            ("nAN", json!("nAN")),
            (".nAN", json!(".nAN")),
            (".iNF", json!(".iNF")),
            ("Null", json!(null)),
            ("NULL", json!(null)),
            ("OFF", json!(false)),
            ("Off", json!(false)),
            ("Yes", json!(true)),
            ("y", json!(true)),
            ("N", json!(false)),
            ("TRUE", json!(true)),
            ("1:30", json!("1:30")),
            (".1_0", json!(0.1)),
            (".5_", json!(".5_")),
            ("._5", json!("._5")),
            ("-_1", json!(-1)),
            ("+_1.5e3", json!(1500.0)),
            ("-._5", json!(-0.5)),
            ("-_0x1", json!(-1)),
            ("-__", json!("-__")),
            ("-_a", json!("-_a")),
            ("+_-1", json!("+_-1")),
            ("-.nan", json!("-.nan")),
            ("+.NaN", json!("+.NaN")),
        ] {
            // The second document has an anchor, which only the library reads.
            let documents = [
                (format!("a: {scalar}\n"), json!({"a": value})),
                (format!("a: &x [{scalar}]\nb: '{scalar}'\n"), json!({"a": [value], "b": scalar})),
            ];
            wrong.extend(
                documents.into_iter().filter(|(text, value)| of(text).as_ref() != Some(value)).map(|(text, _)| text),
            );
        }
        assert_eq!(wrong, [""; 0]);
        assert_eq!(
            of("a: &x nULL\nb: 'it: nULL'\nc: |\n  nULL\n# nULL\n"),
            Some(json!({"a": "nULL", "b": "it: nULL", "c": "nULL\n"}))
        );
        assert_eq!(of("? nULL\n: 1_\n"), Some(json!({"nULL": 1})));
    }

    #[test]
    fn a_tagged_scalar_is_of_the_type_that_go_reads() {
        for (scalar, value) in [
            ("!!int 1_", Some(json!(1))),
            ("!!int 0x_1", Some(json!(1))),
            ("!!float 1_", Some(json!(1.0))),
            ("!!int 1_a", None),
            ("!!str 1_", Some(json!("1_"))),
            ("!foo 1_", Some(json!("1_"))),
            ("!!bool yes", Some(json!(true))),
            ("!!bool yES", None),
            ("!!null Null", Some(json!(null))),
            ("!!null nULL", None),
            ("!!str nULL", Some(json!("nULL"))),
        ] {
            assert_eq!(of(&format!("a: {scalar}\n")).map(|mut document| document["a"].take()), value, "{scalar}");
        }
        let error = yaml::value("a: !!bool yES\n").unwrap_err().to_string();
        assert_eq!(error, "\"yES\" is no bool, which its tag says");
    }

    #[test]
    fn a_unicode_next_line_is_a_line_break() {
        assert_eq!(
            of("a: 'x\u{85}y'\u{85}b: c # d\u{85}e: |\n  x\u{85}  y\n"),
            Some(json!({"a": "x y", "b": "c", "e": "x\ny\n"}))
        );
        assert_eq!(of("a: \"x\\Ny\""), Some(json!({"a": "x\u{85}y"})));
        assert_eq!(of("a: x\u{85}b"), None);
    }

    #[test]
    fn a_quoted_scalar_goes_on_with_any_indentation() {
        for (text, value) in [
            ("a:\n  b: \"{\n\\\"x\\\": 1\n}\"\nc: d", json!({"a": {"b": "{ \"x\": 1 }"}, "c": "d"})),
            ("a:\n  b: '{\n x\n}'\nc: d", json!({"a": {"b": "{ x }"}, "c": "d"})),
            ("a: \"x\ny\"", json!({"a": "x y"})),
            ("- - b: \"x\ny\n\nz\"\n- c", json!([[{"b": "x y\nz"}], "c"])),
            ("a:\n  b: \"x\n#y\"", json!({"a": {"b": "x #y"}})),
            ("a: &x \"x\ny\"\nb: *x", json!({"a": "x y", "b": "x y"})),
            ("a: 'x\nit''s\ny'\nb: 'x\ny'\n", json!({"a": "x it's y", "b": "x y"})),
            // The scalars after it are read as by Go, too.
            (
                "a: \"x\ny\"\nb: [nULL, oFF, 1_0, 1e400]\nc: 1_",
                json!({"a": "x y", "b": ["nULL", "oFF", 10, "1e400"], "c": 1}),
            ),
            ("a: \"x\ny\\\\\"\nb: \"\\\"\nc\" # it's\nd: 'e\n\n\tf'", json!({"a": "x y\\", "b": "\" c", "d": "e\nf"})),
            ("a: it's \"b # 'c\nd: \"x\ny\"", json!({"a": "it's \"b", "d": "x y"})),
            ("a: [\"x\ny\", 'z\n---a']\nb: {c: \"d\n}\"}", json!({"a": ["x y", "z ---a"], "b": {"c": "d }"}})),
        ] {
            assert_eq!(of(text), Some(value), "{text:?}");
        }
        let many = |of: usize| format!("a: '{{\n{}}}'\n", "\"x\": 1,\n".repeat(of));
        assert!(of(&many(20)).is_some());
        let scalars: String = (0..100).map(|number| format!("k{number}: \"x\ny\"\n")).collect();
        assert_eq!(of(&scalars).unwrap().as_object().unwrap().len(), 100);
        for text in ["a:\n  b: \"x\n---\ny\"", "\"x\ny\": 1", "a:\n  b: x\ny\n", "a: \"x\ny"] {
            assert_eq!(of(text), None, "{text:?}");
        }
    }
}
