//! Reads and writes the files that the command line names.
#![expect(clippy::disallowed_methods, reason = "reads and writes the files that the command line names")]

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use contract::diagnostics::terminal::{is_unprintable, printable};
use inject::write as yaml_document;
use serde_json::{Map, Value};

use super::{Error, Streams};

/// The output format of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    Text,
    Json,
}

/// The size limit of a file in bytes.
const MAX_SIZE: u64 = 64 << 20;

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<String, Error> {
    let wrong = |cause| Error::File { what: "open", path: path.to_owned(), cause };
    read_limited(File::open(path).map_err(wrong)?).map_err(wrong)
}

/// Reads a file, or standard input for `-`.
pub(super) fn read_or_input(path: &Path, streams: &mut Streams<'_>) -> Result<String, Error> {
    if path == Path::new("-") {
        return read_limited(&mut *streams.input).map_err(|cause| Error::Stream { what: "standard input", cause });
    }
    read(path)
}

/// Writes to the file, or to standard output without one.
pub(super) fn write(path: Option<&Path>, text: &str, streams: &mut Streams<'_>) -> Result<(), Error> {
    match path {
        Some(path) => {
            fs::write(path, text).map_err(|cause| Error::File { what: "write", path: path.to_owned(), cause })
        }
        None => {
            streams.out.write_all(text.as_bytes()).map_err(|cause| Error::Stream { what: "standard output", cause })
        }
    }
}

/// Formats values as indented JSON, with a final newline.
pub(super) fn json(values: &[Value]) -> Result<String, Error> {
    let text = serde_json::to_string_pretty(values).map_err(Error::Json)? + "\n";
    // JSON contains unprintable characters only within strings, apart from line breaks, so each escape is within a
    // string.
    let escaped = |c: char| match c {
        c if c != '\n' && is_unprintable(c) => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    Ok(if text.contains(|c| c != '\n' && is_unprintable(c)) { text.chars().map(escaped).collect() } else { text })
}

/// Formats values as YAML documents, in whose strings characters that could control a terminal are escaped.
pub(super) fn yaml(values: impl Iterator<Item = Value>) -> Result<String, Error> {
    let texts: Vec<String> = values.map(|value| yaml_document(visible(value))).collect::<Result<_, _>>()?;
    let text = texts.concat();
    Ok(text.strip_suffix("---\n").unwrap_or(&text).to_owned())
}

/// Escapes the strings and keys in a value.
fn visible(value: Value) -> Value {
    match value {
        Value::String(text) => printable(&text).into(),
        Value::Array(items) => items.into_iter().map(visible).collect(),
        Value::Object(map) => {
            let entry = |(key, value): (String, Value)| (printable(&key).into_owned(), visible(value));
            Value::Object(map.into_iter().map(entry).collect::<Map<_, _>>())
        }
        other => other,
    }
}

fn read_limited(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(MAX_SIZE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_SIZE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {MAX_SIZE} bytes")));
    }
    Ok(text)
}
