//! Quotes numbers that no float can hold: Go's reader reads a scalar such as `123e4567` as a string, and the library
//! refuses it.
//!
//! `library` calls this module for a document that was refused because of such a scalar.

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle};

/// Returns the text with quotes around each plain scalar without a tag that is a number beyond all floats, or `None` if
/// it has no such scalar.
pub(super) fn quoted(text: &str) -> Option<String> {
    let (mut quoted, mut done) = (String::new(), 0);
    for (event, span) in Parser::new_from_str(text).map_while(Result::ok) {
        let Event::Scalar(value, ScalarStyle::Plain, _, None) = &event else { continue };
        let Some(at) = span.start.byte_offset().filter(|_| is_beyond(value)) else { continue };
        let end = at + value.len();
        if text.get(at..end) == Some(value) {
            quoted.push_str(text.get(done..at)?);
            quoted.push_str(&format!("'{value}'"));
            done = end;
        }
    }
    quoted.push_str(text.get(done..)?);
    (done > 0).then_some(quoted)
}

/// Whether a scalar has the form of a number whose value no float can hold.
fn is_beyond(scalar: &str) -> bool {
    let is_number = scalar.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    is_number && scalar.parse::<f64>().is_ok_and(f64::is_infinite)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::yaml::{self, library};

    #[test]
    fn a_number_beyond_all_floats_is_text() {
        for scalar in ["123e4567", "1e999", "-1e999", "+1e999", "1.5E400", ".5e999", "-.5e999", "1_0e999"] {
            let of = |value: &str| yaml::value(&format!("a: {value}\nb: [{value}, {{{value}: x}}]\n? {value}\n: 1\n"));
            let expected = json!({"a": scalar, "b": [scalar, {scalar: "x"}], scalar: 1});
            assert_eq!(of(scalar).unwrap(), expected);
            let read: Value = library::read(&format!("a: {scalar}")).unwrap();
            assert_eq!(read, json!({"a": scalar}));
        }
        let merged = "é: &a {x: &n 123e4567}\nb: {<<: *a, z: 1e5}\nb: {<<: *a, z: 1e999}\nc: \"123e4567\"\n";
        let expected = json!({"é": {"x": "123e4567"}, "b": {"x": "123e4567", "z": "1e999"}, "c": "123e4567"});
        assert_eq!(yaml::value(merged).unwrap(), expected);
        let mut budget = gotemplate::Budget::default();
        assert_eq!(yaml::value_within(merged, &mut budget).unwrap(), expected);
    }

    #[test]
    fn infinity_and_nan_stay_refused() {
        for scalar in [".inf", "-.inf", ".nan", "!!float 1e999"] {
            yaml::value(&format!("a: 1e999\nb: {scalar}\n")).unwrap_err();
        }
    }
}
