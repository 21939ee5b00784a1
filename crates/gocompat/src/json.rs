//! JSON as Go writes it: `encoding/json` escapes characters that are special in HTML and in JavaScript.
//!
//! It is used for values that a Go program compares as strings.

use std::io::{self, Write};

use serde_json::ser::Formatter;

/// The formatter of compact JSON with Go's escapes for HTML.
#[derive(Debug)]
pub struct Html;

impl Formatter for Html {
    fn write_string_fragment<W: Write + ?Sized>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        let mut rest = text;
        while let Some(at) = rest.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            let (plain, special) = rest.split_at(at);
            let mut characters = special.chars();
            let escape: &[u8] = match characters.next() {
                Some('<') => b"\\u003c",
                Some('>') => b"\\u003e",
                Some('&') => b"\\u0026",
                Some('\u{2028}') => b"\\u2028",
                _ => b"\\u2029",
            };
            out.write_all(plain.as_bytes())?;
            out.write_all(escape)?;
            rest = characters.as_str();
        }
        out.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize as _;
    use serde_json::{Serializer, Value, json};

    use super::*;

    fn written(value: &Value) -> String {
        let mut text = Vec::new();
        value.serialize(&mut Serializer::with_formatter(&mut text, Html)).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn special_characters_are_escaped_in_keys_and_values() {
        assert_eq!(written(&json!({"<": "a&b>"})), r#"{"\u003c":"a\u0026b\u003e"}"#);
        assert_eq!(written(&json!("\u{2028}\u{2029}é\t")), r#""\u2028\u2029é\t""#);
    }
}
