//! Formats a log line as Istio's programs do. Pure. Control characters are escaped, so that input cannot forge a line.

use std::fmt::Write as _;

use contract::diagnostics::Level;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The size limit of [`Line::text`], in bytes.
const LINE_LIMIT: usize = 500;

/// A log line for reports, of limited size and without control characters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Line {
    /// RFC 3339.
    pub time: String,
    pub level: String,
    pub scope: String,
    /// The message and the fields.
    pub text: String,
}

/// A log line.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub level: Level,
    pub time: Timestamp,
    pub scope: String,
    pub message: String,
    pub fields: Map<String, Value>,
}

impl Record {
    /// Formats as JSON, with Istio's keys first.
    pub(super) fn to_json(&self) -> String {
        let mut line = Map::new();
        line.insert("level".to_owned(), self.level.as_str().into());
        line.insert("time".to_owned(), time(self.time).into());
        line.insert("scope".to_owned(), self.scope.clone().into());
        line.insert("msg".to_owned(), self.message.clone().into());
        for (key, value) in &self.fields {
            line.entry(key.clone()).or_insert_with(|| value.clone());
        }
        Value::Object(line).to_string()
    }

    /// Returns the message for reports, of limited size and without control characters.
    pub fn message_line(&self) -> String {
        printable_line(&self.message)
    }

    /// Returns the record as a line for reports, with message and fields shortened together.
    pub fn line(&self) -> Line {
        let mut text = printable(&self.message);
        for (key, value) in &self.fields {
            let value = value.as_str().map_or_else(|| value.to_string(), printable);
            // Writing to a string cannot fail.
            let _ = write!(text, " {}={value}", printable(key));
            if text.len() > LINE_LIMIT {
                break;
            }
        }
        text.truncate(text.floor_char_boundary(LINE_LIMIT));
        Line { time: time(self.time), level: self.level.as_str().to_owned(), scope: self.scope.clone(), text }
    }

    /// Formats as tab-separated text; the scope `default` is omitted.
    pub(super) fn to_text(&self) -> String {
        let mut line = format!("{}\t{}\t", time(self.time), self.level.as_str());
        if self.scope != "default" {
            line.push_str(&self.scope);
            line.push('\t');
        }
        line.push_str(&printable(&self.message));
        for (position, (key, value)) in self.fields.iter().enumerate() {
            let value = value.as_str().map_or_else(|| value.to_string(), printable);
            let before = if position == 0 { '\t' } else { ' ' };
            // Writing to a string cannot fail.
            let _ = write!(line, "{before}{}={value}", printable(key));
        }
        line
    }
}

/// Formats as RFC 3339 with microseconds.
fn time(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// Escapes the control characters of a string for reports, and limits its size.
pub fn printable_line(text: &str) -> String {
    let mut text = printable(text);
    text.truncate(text.floor_char_boundary(LINE_LIMIT));
    text
}

fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut printable, character| {
        if character.is_control() {
            printable.extend(character.escape_default());
        } else {
            printable.push(character);
        }
        printable
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(fields: &Value) -> Record {
        Record {
            level: Level::Warn,
            time: "2026-01-02T03:04:05.5Z".parse().unwrap(),
            scope: "install".into(),
            message: "first\nsecond".into(),
            fields: fields.as_object().unwrap().clone(),
        }
    }

    #[test]
    fn fields_cannot_replace_istios_keys_in_json() {
        let line = record(&json!({"pod": "shop/web-0", "level": "debug"})).to_json();
        let expected = r#"{"level":"warn","time":"2026-01-02T03:04:05.500000Z","scope":"install","msg":"first\nsecond","pod":"shop/web-0"}"#;
        assert_eq!(line, expected);
    }

    #[test]
    fn a_line_for_reports_is_short_and_has_no_control_characters() {
        let line = record(&json!({"a": "x\u{1b}[2J", "long": "é".repeat(LINE_LIMIT)})).line();
        assert!(line.text.starts_with("first\\nsecond a=x\\u{1b}[2J long=éé"), "{}", line.text);
        assert!((LINE_LIMIT - 1..=LINE_LIMIT).contains(&line.text.len()), "{}", line.text.len());
        assert_eq!((line.level.as_str(), line.scope.as_str()), ("warn", "install"));
    }

    #[test]
    fn text_with_control_characters_is_one_line() {
        let line = record(&json!({"a": "x\ty\u{1b}[2J", "n": 3, "k\n": null})).to_text();
        let expected = "2026-01-02T03:04:05.500000Z\twarn\tinstall\tfirst\\nsecond\ta=x\\ty\\u{1b}[2J n=3 k\\n=null";
        assert_eq!(line, expected);
    }
}
