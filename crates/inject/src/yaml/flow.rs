//! A reader of quoted scalars of one line, and of flow collections: the lists and maps in brackets.
//!
//! `block` calls this reader. Both readers return `None` for a text that is left to the library.

use serde_json::{Map, Value};

use super::scalar::{Scalars, is_name, is_text};

/// The nesting depth, in levels, from which a text is left to the library. The library's own limits are not smaller for
/// a text of the subset, so that both readers accept the same texts.
pub(super) const DEPTH: usize = 32;

const SPACE: [char; 2] = [' ', '\n'];

/// Reads a value and returns it with the rest of the text.
pub(super) fn node<'t>(text: &'t str, depth: usize, scalars: &Scalars) -> Option<(Value, &'t str)> {
    if depth >= DEPTH {
        return None;
    }
    match text.as_bytes().first()? {
        b'"' | b'\'' => quoted(text).map(|(text, rest)| (Value::String(text), rest)),
        b'[' => list(&text[1..], depth + 1, scalars),
        b'{' => map(&text[1..], depth + 1, scalars),
        _ => {
            let length = text.bytes().position(|byte| !is_name(byte)).unwrap_or(text.len());
            let rest = &text[length..];
            rest.trim_start_matches(SPACE).starts_with([',', ']', '}']).then_some(())?;
            Some((scalars.value(&text[..length])?, rest))
        }
    }
}

fn list<'t>(mut text: &'t str, depth: usize, scalars: &Scalars) -> Option<(Value, &'t str)> {
    let mut list = Vec::new();
    loop {
        if let (rest, true) = close(text, ']') {
            return Some((Value::Array(list), rest));
        }
        let (value, rest) = node(text.trim_start_matches(SPACE), depth, scalars)?;
        list.push(value);
        text = next(rest, ']')?;
    }
}

fn map<'t>(mut text: &'t str, depth: usize, scalars: &Scalars) -> Option<(Value, &'t str)> {
    let mut map = Map::new();
    loop {
        if let (rest, true) = close(text, '}') {
            return Some((Value::Object(map), rest));
        }
        let (key, rest) = key(text.trim_start_matches(SPACE))?;
        let (value, rest) = node(rest.trim_start_matches(' '), depth, scalars)?;
        if map.insert(key, value).is_some() {
            return None;
        }
        text = next(rest, '}')?;
    }
}

/// Skips a closing bracket. Returns the rest of the text and whether the bracket was there.
fn close(text: &str, bracket: char) -> (&str, bool) {
    let text = text.trim_start_matches(SPACE);
    text.strip_prefix(bracket).map_or((text, false), |rest| (rest, true))
}

/// Skips the comma after a value. Before a closing bracket, no comma is needed and nothing is skipped.
fn next(text: &str, bracket: char) -> Option<&str> {
    let text = text.trim_start_matches(SPACE);
    text.strip_prefix(',').or_else(|| text.starts_with(bracket).then_some(text))
}

/// Reads a key and returns it with the text after its colon, on the same line.
fn key(text: &str) -> Option<(String, &str)> {
    if let Some((key, rest)) = quoted(text) {
        return rest.strip_prefix(':').filter(|_| key != "<<").map(|rest| (key, rest));
    }
    let (key, rest) = text.split_once(": ")?;
    (is_text(key) && key.bytes().all(is_name)).then(|| (key.to_owned(), rest))
}

/// Reads a quoted scalar and returns it with the rest of the text.
pub(super) fn quoted(text: &str) -> Option<(String, &str)> {
    match text.as_bytes().first()? {
        b'"' => double(&text[1..]),
        b'\'' => single(&text[1..]),
        _ => None,
    }
}

fn single(mut text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    loop {
        let (part, rest) = text.split_once('\'').filter(|(part, _)| !part.contains('\n'))?;
        value.push_str(part);
        let Some(more) = rest.strip_prefix('\'') else { return Some((value, rest)) };
        value.push('\'');
        text = more;
    }
}

fn double(mut text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    loop {
        let end = text.bytes().position(|byte| matches!(byte, b'"' | b'\\' | b'\n'))?;
        value.push_str(&text[..end]);
        let mut rest = text[end..].chars();
        if rest.next()? == '"' {
            return Some((value, rest.as_str()));
        }
        match rest.next()? {
            same @ ('"' | '\\' | '/') => value.push(same),
            'n' => value.push('\n'),
            't' => value.push('\t'),
            'u' => {
                let digits =
                    rest.as_str().get(..4).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
                value.push(u32::from_str_radix(digits, 16).ok().filter(|code| *code >= 0x20).and_then(char::from_u32)?);
                rest = rest.as_str()[4..].chars();
            }
            _ => return None,
        }
        text = rest.as_str();
    }
}
