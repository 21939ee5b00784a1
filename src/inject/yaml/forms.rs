//! Rewrites what Go's reader reads and the library does not, or differently, to a text that both read in the same way.
//!
//! `library` calls it before it reads a text, and once more for a text that it refuses.

use std::borrow::Cow;

use serde_saphyr::granit_parser::{ErrorKind, Event, Parser, ScalarStyle};

use super::LIMIT;

/// The words that the library knows in any case.
const WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
/// The numbers that the library knows in any case, in the forms that Go knows.
const NO_NUMBERS: [(&str, &[&str]); 2] = [(".nan", &[".nan", ".NaN", ".NAN"]), (".inf", &[".inf", ".Inf", ".INF"])];
/// The number of times that a text is parsed to find the lines of its quoted scalars.
const PASSES: usize = 8;
/// The maximum number of spaces before a line of a quoted scalar.
const SPACES: usize = 80;

/// Returns the text with the scalars as Go reads them: words in other forms than lower-case, upper-case and capitalized are
/// text, and underscores in a number have no meaning.
pub(super) fn of_scalars(text: &str) -> Cow<'_, str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
    if !text.split(|c| !is_part(c)).any(|part| replacement(part).is_some()) {
        return text.into();
    }
    let (mut written, mut done) = (String::new(), 0);
    for (event, span) in Parser::new_from_str(text).map_while(Result::ok) {
        let Event::Scalar(value, ScalarStyle::Plain, _, None) = &event else { continue };
        let (Some(at), Some(new)) = (span.start.byte_offset(), replacement(value)) else { continue };
        let end = at + value.len();
        if text.get(at..end) == Some(value) && at >= done {
            written.push_str(&text[done..at]);
            written.push_str(&new);
            done = end;
        }
    }
    written.push_str(&text[done..]);
    written.into()
}

/// Returns the text in whose place both readers read what Go reads for a plain scalar; `None` for the scalar itself.
fn replacement(scalar: &str) -> Option<String> {
    let unsigned = scalar.strip_prefix(['+', '-']).unwrap_or(scalar);
    let is_word = WORDS.iter().any(|word| word.eq_ignore_ascii_case(scalar));
    let no_number = NO_NUMBERS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unsigned));
    if is_word && !is_form(scalar) || no_number.is_some_and(|(_, forms)| !forms.contains(&unsigned)) {
        return Some(format!("'{scalar}'"));
    }
    let plain = scalar.replace('_', "");
    let is_changed = plain != scalar && unsigned.starts_with(|c: char| c.is_ascii_digit());
    (is_changed && is_number(&plain)).then_some(plain)
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

/// Returns the text with more spaces before the further lines of quoted scalars, which Go reads with any indentation; `None` if the
/// library refuses the text for another reason. Spaces at the start of such a line have no meaning.
pub(super) fn indented(text: &str) -> Option<String> {
    let mut indented: Option<String> = None;
    for _ in 0..PASSES {
        let text = indented.as_deref().unwrap_or(text);
        let Some(Err(error)) = Parser::new_from_str(text).find(Result::is_err) else { return indented };
        if !matches!(error.kind(), ErrorKind::InvalidQuotedScalarIndent) {
            return None;
        }
        indented = Some(with_spaces(text, error.marker().line())).filter(|text| text.len() <= LIMIT);
        indented.as_ref()?;
    }
    None
}

/// Adds spaces before a line of a quoted scalar, from 1, and before those after it up to the first with a quote.
fn with_spaces(text: &str, line: usize) -> String {
    let mut written = String::with_capacity(text.len() * 2);
    let (mut width, mut is_open) = (0, true);
    for (number, content) in (1..).zip(text.split_inclusive('\n')) {
        if number >= line && is_open && !content.starts_with("---") && !content.starts_with("...") {
            written.extend(std::iter::repeat_n(' ', width));
            is_open = !content.replace("\\\"", "").contains(['"', '\'']);
        } else if number < line && !content.trim().is_empty() {
            width = content.trim_end().len().min(SPACES);
        }
        written.push_str(content);
    }
    written
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::inject::yaml;

    /// Returns what the three readers make of a text.
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
        // The values are those of sigs.k8s.io/yaml 1.4.
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
    fn a_quoted_scalar_goes_on_with_any_indentation() {
        for (text, value) in [
            ("a:\n  b: \"{\n\\\"x\\\": 1\n}\"\nc: d", json!({"a": {"b": "{ \"x\": 1 }"}, "c": "d"})),
            ("a:\n  b: '{\n x\n}'\nc: d", json!({"a": {"b": "{ x }"}, "c": "d"})),
            ("a: \"x\ny\"", json!({"a": "x y"})),
            ("- - b: \"x\ny\n\nz\"\n- c", json!([[{"b": "x y\nz"}], "c"])),
            ("a:\n  b: \"x\n#y\"", json!({"a": {"b": "x #y"}})),
            ("a: &x \"x\ny\"\nb: *x", json!({"a": "x y", "b": "x y"})),
            ("a: 'x\nit''s\ny'\nb: 'x\ny'\n", json!({"a": "x it's y", "b": "x y"})),
        ] {
            assert_eq!(of(text), Some(value), "{text:?}");
        }
        for text in ["a:\n  b: \"x\n---\ny\"", "\"x\ny\": 1", "a:\n  b: x\ny\n", "a: \"x\ny"] {
            assert_eq!(of(text), None, "{text:?}");
        }
    }
}
