//! Parses the plugin's requests on `log.sock` into log records and measurements. Pure.
//!
//! A body is a JSON array of strings, each a JSON object with `level`, `time`, `msg` and fields, the format of Istio's plugin,
//! whose lines are accepted, too.

use contract::diagnostics::Level;
use jiff::Timestamp;
use serde_json::{Map, Value};
use serve::log::{PLUGIN_SCOPE, Record};

/// The maximum number of lines of a request; further lines are omitted.
const LINES: usize = 1000;
/// The maximum number of fields of a line; further fields are omitted.
const FIELDS: usize = 32;
/// The maximum size of a message, or of a field's name or value, in bytes; longer ones are truncated.
const TEXT: usize = 4 << 10;

/// One ADD, measured by the plugin.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The outcome: `redirected`, `skipped` or `failed`.
    pub verdict: String,
    pub reason: String,
    pub seconds: f64,
}

/// Parses the lines of a request. Invalid lines are omitted; lines without a time get `now`.
pub fn records(body: &[u8], now: Timestamp) -> Result<Vec<Record>, serde_json::Error> {
    let lines: Vec<String> = serde_json::from_slice(body)?;
    Ok(lines.iter().take(LINES).filter_map(|line| record(line, now)).collect())
}

fn record(line: &str, now: Timestamp) -> Option<Record> {
    let mut line: Map<String, Value> = serde_json::from_str(line).ok()?;
    let mut take = |key: &str| line.remove(key).and_then(|value| value.as_str().map(str::to_owned));
    let level = Level::named(&take("level")?).filter(|level| *level < Level::None)?;
    let time = take("time").and_then(|time| time.parse().ok()).unwrap_or(now);
    let message = shorten(take("msg")?.trim());
    take("scope");
    let fields = line.into_iter().take(FIELDS).map(|(key, value)| (shorten(&key), bounded(value))).collect();
    Some(Record { level, time, scope: PLUGIN_SCOPE.to_owned(), message, fields })
}

/// Whether the plugin's log level includes a line. The plugin also sends lines below that level that contain a verdict,
/// and marks them with the field [`contract::UNLOGGED`].
pub fn is_logged(record: &Record) -> bool {
    record.fields.get(contract::UNLOGGED).and_then(Value::as_bool) != Some(true)
}

/// Returns the measurement in a log line, if it has one. A line about a redirected pod has no `reason`; the kind of change of the
/// rules takes its place.
pub fn sample(record: &Record) -> Option<Sample> {
    let field = |key: &str| record.fields.get(key);
    if field("cmd")? != "ADD" {
        return None;
    }
    let label = |key: &str| field(key).and_then(Value::as_str).map(label);
    let micros = u32::try_from(field("elapsed_us")?.as_u64()?).ok()?;
    let reason = label("reason").or_else(|| label("change"))?;
    Some(Sample { verdict: label("verdict")?, reason, seconds: f64::from(micros) / 1e6 })
}

/// Returns `text` as a metric label value: unchanged if it has the form of the plugin's names, else `other`, because peers must not
/// create arbitrary label values.
pub(super) fn label(text: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
    if (1..=40).contains(&text.len()) && text.chars().all(plain) { text.to_owned() } else { "other".to_owned() }
}

fn bounded(value: Value) -> Value {
    match value {
        Value::String(text) => shorten(&text).into(),
        Value::Array(_) | Value::Object(_) => shorten(&value.to_string()).into(),
        value => value,
    }
}

fn shorten(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT)].to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn read(lines: &[&str]) -> Vec<Record> {
        records(&serde_json::to_vec(lines).unwrap(), now()).unwrap()
    }

    #[test]
    fn a_line_is_parsed_into_level_time_message_and_fields() {
        let line =
            r#"{"level":"warn","time":"2025-05-05T05:05:05.5Z","scope":"x","msg":" odd \n","pod":"shop/web-0","n":3}"#;
        let expected = Record {
            level: Level::Warn,
            time: "2025-05-05T05:05:05.5Z".parse().unwrap(),
            scope: "cni-plugin".into(),
            message: "odd".into(),
            fields: json!({"pod": "shop/web-0", "n": 3}).as_object().unwrap().clone(),
        };
        assert_eq!(read(&[line]), [expected]);
    }

    #[test]
    fn invalid_lines_are_omitted() {
        let lines = read(&[
            "no json",
            "[]",
            r#"{"level":"loud","msg":"a"}"#,
            r#"{"level":"none","msg":"b"}"#,
            r#"{"level":"info"}"#,
            r#"{"level":"info","msg":"kept","time":"yesterday"}"#,
        ]);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!((lines[0].message.as_str(), lines[0].time), ("kept", now()));
    }

    #[test]
    fn a_body_that_is_no_array_of_strings_is_an_error() {
        for body in ["", "{}", "[1]", "\"x\""] {
            assert!(records(body.as_bytes(), now()).is_err(), "{body}");
        }
    }

    #[test]
    fn lines_fields_and_texts_are_limited() {
        let long = "é".repeat(TEXT);
        let mut line = json!({"level": "info", "msg": long, "text": format!("x{long}"), "nested": {"a": long}});
        line.as_object_mut().unwrap().extend((0..100).map(|n| (format!("k{n}"), n.into())));
        let records = read(&vec![line.to_string().as_str(); LINES + 1]);
        assert_eq!((records.len(), records[0].fields.len()), (LINES, FIELDS));
        let field = |key: &str| records[0].fields[key].as_str().unwrap().len();
        assert_eq!((records[0].message.len(), field("text"), field("nested")), (TEXT, TEXT - 1, TEXT));
    }

    #[test]
    fn an_add_is_a_sample() {
        let of = |line: &Value| sample(&read(&[&line.to_string()])[0]);
        let line = json!({"level": "info", "msg": "m", "cmd": "ADD", "verdict": "skipped", "reason": "no_proxy",
                          "elapsed_us": 1500});
        let expected = Sample { verdict: "skipped".into(), reason: "no_proxy".into(), seconds: 0.0015 };
        assert_eq!(of(&line), Some(expected));
        for (key, value) in [("cmd", json!("CHECK")), ("elapsed_us", json!(-1)), ("verdict", json!(null))] {
            let mut line = line.clone();
            line[key] = value;
            assert_eq!(of(&line), None, "{key}");
        }
        let mut odd = line;
        odd["reason"] = json!("a\"b");
        assert_eq!(of(&odd).unwrap().reason, "other");
    }
}
